package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/load"
	"github.com/turnpike-gateway/turnpike/bench/wire"
)

// heldBody is the size of the request bodies of held streams, in bytes.
const heldBody = 8 << 10

// gather opens n streams through the proxy to a [fake.Holder], which stop after
// their first events; mute ones even before.
func (r *rig) gather(ctx context.Context, proxy target, n int, mute bool) (*load.Crowd, error) {
	if files, known := openFiles(); known {
		if err := fits(n, files); err != nil {
			return nil, err
		}
	}
	exchanges := make([]load.Exchange, n)
	for i := range exchanges {
		tag := fmt.Sprintf("held%05d", i)
		if mute {
			tag = fake.MuteTag + tag
		}
		body := wire.Body(tag, heldBody, true)
		exchanges[i] = load.Exchange{Request: load.Post(proxy.addr, wire.Path, r.clientKey, body), Want: wanted(body)}
		if !mute {
			exchanges[i].Mark = len(fake.Begin(exchanges[i].Want.Body))
		}
	}
	crowd, err := load.Gather(ctx, proxy.addr, exchanges)
	if err != nil {
		return nil, fmt.Errorf("%d streams at the same time: %w\n%s", n, err, proxy.proc.Tail())
	}
	return crowd, nil
}

// fits says whether processes that may open so many files have room for n
// streams at the same time, each of which is two connections of the gateway.
func fits(n int, files uint64) error {
	const others = 200
	if need := uint64(2*n + others); files < need {
		return fmt.Errorf("%d streams at the same time need %d open files, and a process may have %d (ulimit -Hn)", n, need, files)
	}
	return nil
}

// open asks a fake server how many requests it has not answered to the end.
func (t target) open(ctx context.Context) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.addr+"/open", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 100))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// release lets the streams that a [fake.Holder] holds go on.
func (t target) release(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+t.addr+"/release", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
