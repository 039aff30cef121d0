package httptool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
	"github.com/turnpike-gateway/turnpike/tool"
)

// DispatchCalls is how many calls of a Dispatcher an org has at a time, over all its runs. Further calls wait.
const DispatchCalls = 64

// The limits of a call that is dispatched.
const (
	dispatchCharacters = 10_000 // of the text that the model gets
	dispatchRetries    = 2
	dispatchOverhead   = 4 << 10 // of the JSON around that text, in bytes
	escapedCharacter   = 12      // bytes of a character of two escapes, such as 😀
)

// Dispatch is the URL that executes the tools of requests.
type Dispatch struct {
	URL     string
	Timeout time.Duration // of a call, with its retries
	Keys    []webhook.Key // sign each request; nil = they are not signed
}

// Dispatcher makes tools of the definitions in requests, which one URL executes:
//
//	POST {"name": "get_order", "arguments": {"id": 7}}   ──►  "sent"  or  {"content": "sent"}
//
// The zero value can be used. It is safe for concurrent use.
type Dispatcher struct {
	mu   sync.Mutex
	orgs map[string]*lane
}

// lane bounds the calls of one org.
type lane struct {
	calls *semaphore.Weighted
	users int // calls that run or wait; guarded by mu of the Dispatcher
}

// Tools returns the definitions as tools of an org.
func (d *Dispatcher) Tools(orgID string, to Dispatch, definitions []tool.Definition, o Options) tool.Tools {
	out := make(tool.Tools, len(definitions))
	for i, def := range definitions {
		out[i] = &Tool{
			settings: org.HTTPTool{
				Org: orgID, Name: def.Name, Method: http.MethodPost, Class: tool.Once, Timeout: to.Timeout, MaxRetries: dispatchRetries, MaxCharacters: dispatchCharacters,
			},
			url:        URL{parts: []part{{text: to.URL}}},
			definition: tool.Definition{Name: def.Name, Description: def.Description, InputSchema: def.InputSchema},
			dispatch:   &to, calls: orgCalls{d, orgID}, o: o.withDefaults(),
		}
	}
	return out
}

// orgCalls is the semaphore of an org. It exists while calls use it.
type orgCalls struct {
	d   *Dispatcher
	org string
}

// Acquire waits for a place.
func (c orgCalls) Acquire(ctx context.Context, n int64) error {
	c.d.mu.Lock()
	l := c.d.orgs[c.org]
	if l == nil {
		if c.d.orgs == nil {
			c.d.orgs = map[string]*lane{}
		}
		l = &lane{calls: semaphore.NewWeighted(DispatchCalls)}
		c.d.orgs[c.org] = l
	}
	l.users++
	c.d.mu.Unlock()
	err := l.calls.Acquire(ctx, n)
	if err != nil {
		c.leave()
	}
	return err
}

// Release gives a place back.
func (c orgCalls) Release(n int64) {
	c.d.mu.Lock()
	c.d.orgs[c.org].calls.Release(n)
	c.d.mu.Unlock()
	c.leave()
}

func (c orgCalls) leave() {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	l := c.d.orgs[c.org]
	if l.users--; l.users == 0 {
		delete(c.d.orgs, c.org)
	}
}

// dispatched is the body of a request.
type dispatched struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// body returns the body of the request of a call.
func (d *Dispatch) body(name string, arguments json.RawMessage) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(dispatched{name, arguments}); err != nil {
		return nil, fmt.Errorf("the arguments are not JSON: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// sign signs a request with the keys. Its id is the same for all attempts of a call.
func (d *Dispatch) sign(h http.Header, r request) error {
	if len(d.Keys) == 0 {
		return nil
	}
	messageID := r.key
	if messageID == "" || strings.ContainsAny(messageID, ". \r\n") {
		messageID = id.New("msg_")
	}
	return webhook.Sign(h, messageID, clock.Wall(), r.body, d.Keys...)
}

// contentOf returns the text of an answer: of a JSON string, of {"content": "…"}, or else the answer itself.
func contentOf(data []byte) []byte {
	var text *string
	if json.Unmarshal(data, &text) == nil && text != nil {
		return []byte(*text)
	}
	var object struct {
		Content *string `json:"content"`
	}
	if json.Unmarshal(data, &object) == nil && object.Content != nil {
		return []byte(*object.Content)
	}
	return data
}

// mostBytes is how much of an answer is read: its text with all characters escaped.
func (d *Dispatch) mostBytes() int {
	return escapedCharacter*dispatchCharacters + dispatchOverhead
}
