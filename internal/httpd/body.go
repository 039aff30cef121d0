package httpd

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// step is how many bytes of a body must come in each BodyTimeout, from
// reference/reliability 4.6.
const step = 1 << 10

// body is the body of a request, which must be small enough and must come.
// Its errors are [fault.Error]s.
type body struct {
	io.ReadCloser
	w       http.ResponseWriter
	control *http.ResponseController
	most    int64         // bytes
	within  time.Duration // for each step

	declared  int64 // -1 = unknown
	got, next int64 // bytes; where the deadline moves
	over      bool  // there is more than most
}

// await gives the body of a request its first deadline, also where nobody is to
// read it: the server itself does before it answers.
func (a *API) await(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.o.Limits.BodyTimeout))
	}
}

// newBody returns the request with its body bounded. The request is another one,
// because the server still has to know its own body when the answer is written.
func (a *API) newBody(w http.ResponseWriter, r *http.Request, most int64) (*http.Request, *body) {
	b := &body{ReadCloser: r.Body, w: w, control: http.NewResponseController(w), most: most,
		within: a.o.Limits.BodyTimeout, declared: r.ContentLength, next: step}
	bounded := new(http.Request)
	*bounded = *r
	bounded.Body = b
	return bounded, b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.over || b.declared > b.most {
		return 0, b.tooLarge()
	}
	if b.got >= b.next {
		_ = b.control.SetReadDeadline(time.Now().Add(b.within))
		b.next = b.got + step
	}
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	switch {
	case b.got > b.most:
		return 0, b.tooLarge()
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		_ = b.control.SetReadDeadline(time.Time{}) // what follows waits as long as it must
		return n, io.EOF
	}
	b.w.Header().Set("Connection", "close") // the answer does not wait for the rest
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, fault.New(fault.Timeout, "body_timeout", "the request body did not come: less than %d bytes in %v", step, b.within)
	}
	return n, &fault.Error{Code: fault.Invalid, Reason: "body_unreadable", Message: "the request body could not be read to its end", Err: err}
}

func (b *body) tooLarge() error {
	b.over = true
	b.w.Header().Set("Connection", "close")
	return fault.New(fault.TooLarge, "request_too_large", "the request body is larger than %d bytes", b.most)
}

// linger lets a client whose body was refused for its size finish sending,
// within reason: many read no answer before they have. One that asked first has
// sent nothing.
func (b *body) linger(asked bool) {
	if !b.over || asked {
		return
	}
	_ = b.control.Flush()
	_ = b.control.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.CopyN(io.Discard, b.ReadCloser, 4*b.most)
}
