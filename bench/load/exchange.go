package load

import (
	"fmt"
	"strings"
)

// Exchange is one request and the answer that it must get.
type Exchange struct {
	Request []byte // the whole HTTP/1.1 request, head and body
	Want    Answer
	Mark    int // how many bytes of the body [Gather] waits for; else without meaning
}

// Answer is the one right answer to a request.
type Answer struct {
	Status      int
	ContentType string // without parameters, lower case
	Body        []byte // after transfer decoding
}

// Post returns the request bytes of a POST of a JSON body with a bearer key.
func Post(addr, path, key string, body []byte) []byte {
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, addr, key, len(body))
	return append([]byte(head), body...)
}

// Kind says what was wrong with an answer.
type Kind string

// The kinds of fault.
const (
	NoAnswer Kind = "no answer" // the connection ended, or spoke no HTTP, before the head was complete
	Refused  Kind = "refused"   // another status than the wanted one
	Cut      Kind = "cut"       // the right beginning, then an end
	Altered  Kind = "altered"   // another content type, another byte, or more bytes
)

// Fault is an answer that was not the wanted one.
type Fault struct {
	Kind   Kind
	Detail string // where, and what was seen there
}

func (f *Fault) Error() string { return string(f.Kind) + ": " + f.Detail }

func fault(k Kind, format string, args ...any) *Fault {
	return &Fault{k, fmt.Sprintf(format, args...)}
}

// mediaType is the value of a Content-Type header without its parameters.
func mediaType(value string) string {
	t, _, _ := strings.Cut(value, ";")
	return strings.ToLower(strings.TrimSpace(t))
}
