package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	// Timeout bounds one attempt, including the part of the response that is read.
	Timeout = 5 * time.Second

	// maxResponse is how much of a response body is read, in bytes, so that the
	// connection can be used again. The content is ignored.
	maxResponse = 16 << 10

	firstDelay = 5 * time.Second
	maxDelay   = time.Hour
)

// Message says what happened to one object.
type Message struct {
	ID     string    // the same for every attempt; without full stops
	Type   string    // such as run.waiting
	At     time.Time // when it happened
	Object string    // the id of the object
}

// Body returns the JSON that is sent. It is the same for every attempt. Its
// members are those of OpenAI's webhooks, which its clients unwrap.
func (m Message) Body() ([]byte, error) {
	type data struct {
		ID string `json:"id"`
	}
	b, err := json.Marshal(struct {
		Object    string `json:"object"`
		ID        string `json:"id"`
		Type      string `json:"type"`
		CreatedAt int64  `json:"created_at"` // Unix seconds
		Data      data   `json:"data"`
	}{"event", m.ID, m.Type, m.At.Unix(), data{m.Object}})
	if err != nil {
		return nil, fmt.Errorf("webhook %s: %w", m.ID, err)
	}
	return b, nil
}

// Endpoint is where messages are sent.
type Endpoint struct {
	URL  string
	Keys []Key // the current key first, then the previous one during a rotation
}

// Result is the outcome of one attempt.
type Result struct {
	// Status is the HTTP status of the response, or 0 if there was none.
	Status int

	// RetryAfter is how long the receiver asks to wait, or 0.
	RetryAfter time.Duration

	// Err says why there was no response, or that it was a redirect. It wraps an
	// *egress.BlockedError if the outbound policy refused the target.
	Err error
}

// Delivered reports whether the receiver accepted the message: only a status 2xx
// does. Redirects are not followed.
func (r Result) Delivered() bool { return r.Err == nil && r.Status/100 == 2 }

// Gone reports whether the receiver asked to get no more messages (410).
func (r Result) Gone() bool { return r.Err == nil && r.Status == http.StatusGone }

// Sender sends messages. It is safe for concurrent use.
type Sender struct{ client *http.Client }

// New returns a Sender that uses client. Pass a guarded client of package egress,
// because orgs name the targets.
func New(client *http.Client) *Sender { return &Sender{client} }

// Send makes one attempt to deliver m to e, signed with the time at. It takes at
// most Timeout and returns earlier if ctx ends.
func (s *Sender) Send(ctx context.Context, e Endpoint, m Message, at time.Time) Result {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	body, err := m.Body()
	if err != nil {
		return Result{Err: err}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, bytes.NewReader(body))
	if err != nil {
		return Result{Err: fmt.Errorf("webhook %s: %w", m.ID, err)}
	}
	if err := Sign(req.Header, m.ID, at, body, e.Keys...); err != nil {
		return Result{Err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "turnpike-webhooks")
	resp, err := s.client.Do(req)
	if err != nil {
		return Result{Err: fmt.Errorf("webhook %s: %w", m.ID, err)}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxResponse)
	return Result{Status: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
}

// retryAfter reads a delay in seconds. The form with a date is ignored: it depends
// on the clock of the receiver.
func retryAfter(h http.Header) time.Duration {
	n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(n) * time.Second
}

// Delay returns how long to wait after the given number of failed attempts, which
// is at least 1. It is 5 s after the first, doubles each time up to an hour, and is
// longer by up to a quarter: jitter, in [0, 1), says how much. A receiver that asks
// for a longer delay gets it, up to an hour.
func Delay(failed int, asked time.Duration, jitter float64) time.Duration {
	d := firstDelay
	for i := 1; i < failed && d < maxDelay; i++ {
		d *= 2
	}
	d = min(max(d, asked), maxDelay)
	return d + time.Duration(jitter*float64(d/4))
}
