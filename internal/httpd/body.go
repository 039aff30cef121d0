package httpd

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// bodyStep is how many bytes of a body must arrive in each [Limits.BodyTimeout].
const bodyStep = 1 << 10

// body is a request body with a size limit and a minimum speed, whose buffer is
// charged to the caller's account. Its errors unwrap to [fault.Error]. It is not
// safe for concurrent use.
type body struct {
	io.ReadCloser
	w           http.ResponseWriter
	control     *http.ResponseController
	limit       int64         // bytes
	stepTimeout time.Duration // per step
	account     *memlimit.Account

	declared           int64 // Content-Length; -1 = unknown
	received, extendAt int64 // bytes read so far; bytes at which the deadline moves
	charged            int64 // bytes: the largest buffer that was read into
	refused            error // set once; later reads return it
}

// setBodyDeadline sets the first deadline of the request body. The server reads a body that
// no handler reads, so every request with a body needs one.
func (a *API) setBodyDeadline(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.o.Limits.BodyTimeout))
	}
}

// limitBody gives r a limited body that is charged to account. r must not be the server's
// own request: the server needs its own body when the handler returns.
func (a *API) limitBody(w http.ResponseWriter, r *http.Request, most int64, account *memlimit.Account) *body {
	b := &body{ReadCloser: r.Body, w: w, control: http.NewResponseController(w), limit: most,
		stepTimeout: a.o.Limits.BodyTimeout, account: account, declared: r.ContentLength, extendAt: bodyStep}
	r.Body = b
	return b
}

// Read implements io.Reader. It assumes that the caller reads the whole body into
// one buffer and that p is the unused part of it, and charges the whole buffer.
func (b *body) Read(p []byte) (int, error) {
	if b.refused == nil {
		b.refused = b.chargeBuffer(b.received + int64(len(p)))
	}
	if b.refused != nil {
		return 0, b.refused
	}
	if b.received >= b.extendAt {
		_ = b.control.SetReadDeadline(time.Now().Add(b.stepTimeout))
		b.extendAt = b.received + bodyStep
	}
	n, err := b.ReadCloser.Read(p)
	b.received += int64(n)
	switch {
	case b.received > b.limit:
		b.refused = b.tooLarge()
		return 0, b.refused
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF):
		_ = b.control.SetReadDeadline(time.Time{}) // the next request on the connection has its own limits
		return n, io.EOF
	}
	b.w.Header().Set("Connection", "close") // do not wait for the rest of the body
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, fault.New(fault.Timeout, "body_timeout", "the request body arrived too slowly: less than %d bytes in %v", bodyStep, b.stepTimeout)
	}
	return n, &fault.Error{Code: fault.Invalid, Reason: "body_unreadable", Message: "the request body could not be read completely", Err: err}
}

// chargeBuffer charges a buffer of the given size, in bytes, or returns why it may not.
func (b *body) chargeBuffer(buffer int64) error {
	if b.declared > b.limit {
		return b.tooLarge()
	}
	if buffer <= b.charged {
		return nil
	}
	if err := b.account.Acquire(int(buffer - b.charged)); err != nil {
		b.w.Header().Set("Connection", "close")
		return err
	}
	b.charged = buffer
	return nil
}

func (b *body) tooLarge() error {
	b.w.Header().Set("Connection", "close")
	return fault.New(fault.TooLarge, "request_too_large", "the request body is larger than %d bytes", b.limit)
}

// drainRefused reads and discards the rest of a refused body for at most 10 seconds,
// because many clients read no response before they have sent everything. It does
// nothing for a client that sent Expect: 100-continue and waits for the answer.
func (b *body) drainRefused(asked bool) {
	if b.refused == nil || asked {
		return
	}
	_ = b.control.Flush()
	_ = b.control.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.CopyN(io.Discard, b.ReadCloser, 4*b.limit)
}
