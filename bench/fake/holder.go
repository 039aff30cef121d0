package fake

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/turnpike-gateway/turnpike/bench/wire"
)

// MuteTag begins the tags of requests that [Holder] does not even begin to answer.
const MuteTag = "mute"

// heldEvents is how many events of a stream a Holder sends at first.
const heldEvents = 3

// Begin returns what a [Holder] sends of a stream before it waits.
func Begin(stream []byte) []byte {
	end := 0
	for range heldEvents {
		end += bytes.Index(stream[end:], []byte("\n\n")) + 2
	}
	return stream[:end]
}

// Holder returns a provider whose answers stop in the middle: it sends the
// beginning of the stream that package wire wants and then nothing, until its
// caller leaves or POST /release lets all streams go on to their end, also
// those that begin later. Requests must carry key as their bearer.
func Holder(key string) http.Handler {
	released := make(chan struct{})
	release := sync.OnceFunc(func() { close(released) })
	mux := http.NewServeMux()
	mux.HandleFunc("POST /release", func(http.ResponseWriter, *http.Request) { release() })
	mux.HandleFunc("POST "+wire.Path, authorized(key, func(w http.ResponseWriter, r *http.Request) {
		body, err := readAll(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		sum, stream, err := wire.Read(body)
		if err != nil || !stream {
			refuse(w, http.StatusBadRequest, errors.Join(err, errors.New("only streams are held")))
			return
		}
		whole := wire.Stream(sum)
		begin := Begin(whole)
		if !strings.HasPrefix(sum.Tag, MuteTag) {
			burst(w, begin)
		}
		select {
		case <-released:
			burst(w, whole[len(begin):])
		case <-r.Context().Done():
		}
	}))
	return mux
}
