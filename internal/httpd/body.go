package httpd

import (
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

// step is how many bytes of a body must come in each BodyTimeout, from
// reference/reliability 4.6.
const step = 1 << 10

// body is the body of a request, which must be small enough and must come, and
// for whose bytes the caller's account must have room. Its errors unwrap to
// [fault.Error]s.
type body struct {
	io.ReadCloser
	w       http.ResponseWriter
	control *http.ResponseController
	most    int64         // bytes
	within  time.Duration // for each step
	account *ledger.Account

	declared  int64 // -1 = unknown
	got, next int64 // bytes; where the deadline moves
	charged   int64 // bytes: the largest buffer that was read into
	refused   error // why the rest is not read, although it comes
}

// await gives the body of a request its first deadline, also where nobody is to
// read it: the server itself does before it answers.
func (a *API) await(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(a.o.Limits.BodyTimeout))
	}
}

// newBody returns the request with its body bounded, and charged to the account.
// The request is another one, because the server still has to know its own body
// when the answer is written.
func (a *API) newBody(w http.ResponseWriter, r *http.Request, most int64, account *ledger.Account) (*http.Request, *body) {
	b := &body{ReadCloser: r.Body, w: w, control: http.NewResponseController(w), most: most,
		within: a.o.Limits.BodyTimeout, account: account, declared: r.ContentLength, next: step}
	bounded := new(http.Request)
	*bounded = *r
	bounded.Body = b
	return bounded, b
}

// Read implements io.Reader. Whoever reads keeps all of the body in one buffer,
// of which p is the rest: the whole buffer is charged.
func (b *body) Read(p []byte) (int, error) {
	if b.refused == nil {
		b.refused = b.fits(b.got + int64(len(p)))
	}
	if b.refused != nil {
		return 0, b.refused
	}
	if b.got >= b.next {
		_ = b.control.SetReadDeadline(time.Now().Add(b.within))
		b.next = b.got + step
	}
	n, err := b.ReadCloser.Read(p)
	b.got += int64(n)
	switch {
	case b.got > b.most:
		b.refused = b.tooLarge()
		return 0, b.refused
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

// fits charges a buffer of so many bytes, or says why it may not be filled.
func (b *body) fits(buffer int64) error {
	if b.declared > b.most {
		return b.tooLarge()
	}
	if buffer <= b.charged {
		return nil
	}
	if err := b.account.Charge(int(buffer - b.charged)); err != nil {
		b.w.Header().Set("Connection", "close")
		return err
	}
	b.charged = buffer
	return nil
}

func (b *body) tooLarge() error {
	b.w.Header().Set("Connection", "close")
	return fault.New(fault.TooLarge, "request_too_large", "the request body is larger than %d bytes", b.most)
}

// linger lets a client whose body was refused finish sending, within reason:
// many read no answer before they have. One that asked first has sent nothing.
func (b *body) linger(asked bool) {
	if b.refused == nil || asked {
		return
	}
	_ = b.control.Flush()
	_ = b.control.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.CopyN(io.Discard, b.ReadCloser, 4*b.most)
}
