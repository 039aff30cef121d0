package fake

import (
	"fmt"
	"net/http"
	"sync/atomic"
)

// Counted answers like h and counts the POST requests that h has not answered
// to the end. GET /open answers with their number, in decimal.
func Counted(h http.Handler) http.Handler {
	var open atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && r.URL.Path == "/open":
			_, _ = fmt.Fprintln(w, open.Load()) // the caller may be gone
		case r.Method == http.MethodPost:
			open.Add(1)
			defer open.Add(-1)
			h.ServeHTTP(w, r)
		default:
			h.ServeHTTP(w, r)
		}
	})
}
