package fake

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// Baseline returns what the gateway is compared with: a stock
// [httputil.ReverseProxy] to base (scheme://host:port) that puts the provider's
// key in place of the client's and does nothing else.
//
// It reads the whole inbound body before it forwards anything. Handing the
// inbound body to the transport is a little cheaper and cuts some fast streams:
// the server closes the body while the transport may still read it
// (golang/go#40747). Server-sent events are flushed at once, which is what
// ReverseProxy does with them by itself.
func Baseline(base *url.URL, key string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(base)
			r.Out.Header.Set("Authorization", "Bearer "+key)
		},
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 256,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := readAll(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		proxy.ServeHTTP(w, r)
	})
}
