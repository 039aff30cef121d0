// Package relay says how a request of a client is forwarded unchanged, to a provider that speaks its dialect.
package relay

import (
	"context"
	"io"

	"github.com/turnpike-gateway/turnpike/model"
)

// Model is a model.Model that can also forward a client's request unchanged. The
// client must speak the provider's dialect: Request.Dialect.
type Model interface {
	// Relays reports whether the provider speaks the dialect. Requests of any
	// other dialect must be translated: use Stream.
	Relays(dialect string) bool

	// Relay sends the body unchanged and returns the answer unchanged, whatever
	// its status. The error is an *[model.Error] without Status: no HTTP answer came.
	// The caller closes the body of the answer. The request body is not read
	// after the first byte of the answer has arrived.
	Relay(ctx context.Context, req *Request) (*Response, error)
}

// Request is a client's request as the client wrote it. Relay owns it until
// the body of the answer is closed: it may change Header and read Body.
type Request struct {
	// Dialect is the wire format of Path and Body, such as [model.DialectChat].
	Dialect string

	Path string // below the base URL, such as "/chat/completions"

	// Header has the fields of the client's that the provider gets: those that the usual
	// clients send and those that the operator listed, and never credentials. Names
	// are in the canonical form of net/http, whose Header can be assigned to and
	// from it.
	Header map[string][]string

	Body []byte

	// Release, if not nil, may be called once, when nothing refers to Body any more and nothing
	// will read it: Body is used again. Relay need not call it.
	Release func()

	// Open returns the body from its beginning, each time it is called, if it is too large
	// for memory; nil = it is Body. Length is its size in bytes.
	Open   func() io.ReadCloser
	Length int64

	// FailsOver says that another provider can be asked: an answer with a status from 400 on is
	// returned as an *[model.Error], and not as a Response.
	FailsOver bool

	// Untold says that the size of the answer does not tell how many tokens it has, such as that
	// of a picture or a vector: see Response.Usage.
	Untold bool

	// Meter asks for the usage of the answer: see Response.Usage.
	Meter bool

	// Ask says that the usage decides what the request is charged. With Meter, a provider that says the usage of a
	// stream only if it is asked to is asked. What it adds to the answer for that is left out of Response.Body.
	Ask bool
}

// Response is the provider's answer.
type Response struct {
	Status int                 // the HTTP status
	Header map[string][]string // names as in Request
	Body   io.ReadCloser
	Length int64 // -1 when unknown

	// Usage returns the usage that the part of Body says that was read, or otherwise an
	// estimate of the output, with Estimated set and without input. It is zero for an answer
	// that says none, if its status is 400 or more or Request.Untold is set. Nil unless
	// Request.Meter is set.
	Usage func() model.Usage
}
