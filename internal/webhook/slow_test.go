package webhook

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// silent is a receiver that never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestAnAttemptHasATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := New(&http.Client{Transport: silent{}}).Send(t.Context(), Endpoint{"http://receiver.example", []Key{key(t, current)}}, message(), at)
		if took := time.Since(began); took != Timeout || !errors.Is(r.Err, context.DeadlineExceeded) {
			t.Errorf("ended after %v with %+v", took, r)
		}
	})
}
