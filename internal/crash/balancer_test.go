//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// How a balancer looks after its replicas.
const (
	checkEvery  = 100 * time.Millisecond
	checkWithin = time.Second
)

// balancer passes each request on to the next replica. It takes out those that refuse a connection or do not answer /readyz
// with 200. A request that a replica may have got is never repeated: its client sees a broken connection.
type balancer struct {
	*httptest.Server
	transport *http.Transport
	stop      context.CancelFunc
	checks    sync.WaitGroup

	mu    sync.Mutex
	urls  []string        // guarded by mu, like the rest
	ready map[string]bool // by URL
	next  int
}

// newBalancer starts a balancer without replicas, which ends with the test.
func newBalancer(t *testing.T) *balancer {
	// It keeps connections. A request that it sends on one that its replica closes at this moment is lost: nobody may send it again.
	b := &balancer{transport: &http.Transport{MaxIdleConnsPerHost: 64}, ready: map[string]bool{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {}, // RoundTrip chooses the replica
		Transport:     b,
		FlushInterval: -1,
		ErrorLog:      quiet,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errNoReplica) {
				w.Header().Set("Retry-After", "1")
				http.Error(w, `{"error":{"message":"no replica is ready","code":"store_unavailable"}}`, http.StatusServiceUnavailable)
				return
			}
			panic(http.ErrAbortHandler)
		},
	}
	b.Server = httptest.NewUnstartedServer(proxy)
	b.Config.ErrorLog = quiet
	b.Start()
	var ctx context.Context
	ctx, b.stop = context.WithCancel(context.Background())
	b.checks.Go(func() { b.check(ctx) })
	t.Cleanup(func() {
		b.stop()
		b.checks.Wait()
		b.CloseClientConnections()
		b.Close()
		b.transport.CloseIdleConnections()
	})
	return b
}

// add has the balancer use a replica when it is ready, instead of the one with the old URL; "" = beside the others.
func (b *balancer) add(url, old string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.urls {
		if other == old {
			b.urls[i] = url
			return
		}
	}
	b.urls = append(b.urls, url)
}

var errNoReplica = errors.New("no replica is ready")

// choose returns the next replica that is ready.
func (b *balancer) choose() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range b.urls {
		b.next++
		if u := b.urls[b.next%len(b.urls)]; b.ready[u] {
			return u, nil
		}
	}
	return "", errNoReplica
}

func (b *balancer) set(url string, ready bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ready[url] = ready
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	for {
		at, err := b.choose()
		if err != nil {
			return nil, err
		}
		one := r.Clone(r.Context())
		one.Body, one.GetBody = io.NopCloser(bytes.NewReader(body)), nil
		u, err := url.Parse(at)
		if err != nil {
			return nil, err
		}
		one.URL.Scheme, one.URL.Host, one.Host = u.Scheme, u.Host, u.Host
		resp, err := b.transport.RoundTrip(one)
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" && r.Context().Err() == nil {
			b.set(at, false)
			continue
		}
		return resp, err
	}
}

// check asks all replicas whether they take work, again and again.
func (b *balancer) check(ctx context.Context) {
	again := time.NewTicker(checkEvery)
	defer again.Stop()
	client := &http.Client{Transport: b.transport, Timeout: checkWithin}
	for {
		b.mu.Lock()
		urls := append([]string(nil), b.urls...)
		b.mu.Unlock()
		var all sync.WaitGroup
		for _, u := range urls {
			all.Go(func() { b.set(u, isReady(ctx, client, u)) })
		}
		all.Wait()
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

func isReady(ctx context.Context, client *http.Client, at string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
