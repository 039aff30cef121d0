package fake

import (
	"bytes"
	"errors"
	"net/http"

	"github.com/turnpike-gateway/turnpike/bench/wire"
)

// Upstream returns a provider of chat completions without latency: it reads
// the whole request and answers it as package wire says, JSON in one piece, a
// stream event by event, each flushed, as fast as the connection takes them.
// Requests must carry key as their bearer: a proxy that forwards its client's
// own key is refused.
func Upstream(key string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+wire.Path, authorized(key, func(w http.ResponseWriter, r *http.Request) {
		body, err := readAll(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		sum, stream, err := wire.Read(body)
		switch {
		case err != nil:
			refuse(w, http.StatusBadRequest, err)
		case stream:
			burst(w, wire.Stream(sum))
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(wire.JSON(sum)) // a caller that left is the caller's affair
		}
	}))
	return mux
}

// authorized lets requests with key as their bearer through to h.
func authorized(key string, h http.HandlerFunc) http.HandlerFunc {
	want := "Bearer " + key
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != want {
			refuse(w, http.StatusUnauthorized, errors.New("not the provider's key"))
			return
		}
		h(w, r)
	}
}

// burst writes a stream, one flush for each event.
func burst(w http.ResponseWriter, stream []byte) {
	w.Header().Set("Content-Type", "text/event-stream")
	ctl := http.NewResponseController(w)
	for event := range bytes.SplitAfterSeq(stream, []byte("\n\n")) {
		if len(event) == 0 {
			continue
		}
		if _, err := w.Write(event); err != nil {
			return
		}
		if ctl.Flush() != nil {
			return
		}
	}
}
