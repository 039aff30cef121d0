package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	// maxFetchedFile is how many bytes of an image or a file are fetched for a
	// provider that needs them.
	maxFetchedFile = 20 << 20
	// fetchTimeout is the deadline of such a fetch.
	fetchTimeout = 30 * time.Second
)

// fetch returns the image or the file at a URL that a client has written. The
// outbound policy applies: its refusal is an [egress.BlockedError]. Redirects are not
// followed. Any other error is written for the client and names no address.
func (a *adapters) fetch(ctx context.Context, url string, memory tool.Memory) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, errors.New("the URL is not valid")
	}
	resp, err := a.out.Guarded(egress.GuardedOptions{Timeout: fetchTimeout}).Do(req)
	if err != nil {
		return nil, fetchFailure(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the URL could not be fetched: its server answered %d", resp.StatusCode)
	}
	data, err := memlimit.ReadAll(io.LimitReader(resp.Body, maxFetchedFile+1), min(resp.ContentLength, maxFetchedFile), memory)
	var refused *memlimit.Refused
	switch {
	case errors.As(err, &refused):
		return nil, refused
	case err != nil:
		return nil, fetchFailure(err)
	case len(data) > maxFetchedFile:
		if memory != nil {
			memory.Release(cap(data))
		}
		return nil, fmt.Errorf("the file at the URL is larger than %d MiB", maxFetchedFile>>20)
	}
	return data, nil
}

// fetchFailure returns what a client may know of a failed fetch.
func fetchFailure(err error) error {
	var blocked *egress.BlockedError
	switch timeout := interface{ Timeout() bool }(nil); {
	case errors.As(err, &blocked):
		return blocked
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("the URL could not be fetched: no answer within %s", fetchTimeout)
	}
	return errors.New("the URL could not be fetched: its server cannot be reached, or redirects to another URL")
}
