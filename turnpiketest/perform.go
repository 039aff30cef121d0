package turnpiketest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// performance is one turn as it is played in the process.
type performance struct {
	number int
	model  string
	emit   func(model.Delta) error
	said   map[verb]*strings.Builder
	calls  []model.Call
	stop   model.Stop
	usage  model.Usage
	begun  bool // something has come
}

// play performs the turn's steps. Beside an error it returns what had come
// before it.
func (p *performance) play(ctx context.Context, t turn) (*model.Turn, error) {
	p.said = map[verb]*strings.Builder{}
	for _, s := range t.steps {
		if err := p.step(ctx, s); err != nil {
			p.mark(false)
			return p.partial(), err
		}
	}
	if p.stop == "" {
		p.stop = defaultStop(len(p.calls))
	}
	p.mark(p.stop != model.StopLength)
	return p.turn(), nil
}

// deltaKinds maps what is said to deltas.
var deltaKinds = map[verb]model.DeltaKind{
	sayText: model.TextDelta, sayReasoning: model.ReasoningDelta, sayRefusal: model.RefusalDelta,
}

func (p *performance) step(ctx context.Context, s step) error {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	switch s.verb {
	case sayText, sayReasoning, sayRefusal:
		return p.say(s)
	case makeCall:
		p.begun = true
		p.calls = append(p.calls, s.call)
	case setStop:
		p.stop = s.stop
	case setUsage:
		p.usage = s.usage
	case pause:
		if !sleep(ctx, s.wait) {
			return gone(ctx)
		}
	case hang:
		<-ctx.Done()
		return gone(ctx)
	case cut:
		return &model.Error{Class: model.Transient, Status: http.StatusOK, Message: "the stream ended before the turn did", Err: io.ErrUnexpectedEOF}
	case fail:
		return s.failure.asError(p.begun)
	}
	return nil
}

func (p *performance) say(s step) error {
	p.begun = true
	if p.said[s.verb] == nil {
		p.said[s.verb] = &strings.Builder{}
	}
	p.said[s.verb].WriteString(s.text)
	return p.emit(model.Delta{Kind: deltaKinds[s.verb], Text: s.text})
}

// mark says which calls are complete: the last one only if the turn ended well.
func (p *performance) mark(last bool) {
	for i := range p.calls {
		p.calls[i].Complete = last || i < len(p.calls)-1
	}
}

func (p *performance) partial() *model.Turn {
	if !p.begun {
		return nil
	}
	p.stop = model.StopUnknown
	return p.turn()
}

func (p *performance) turn() *model.Turn {
	t := &model.Turn{
		ID: turnID(p.number), Model: p.model, Items: p.items(), Calls: p.calls,
		Stop: p.stop, RawStop: string(p.stop), Usage: p.usage,
	}
	return t
}

// items returns what was said as entries of a transcript.
func (p *performance) items() []item.Item {
	var items []item.Item
	if b := p.said[sayReasoning]; b != nil {
		items = append(items, item.Item{Kind: item.Reasoning, Parts: []item.Part{{Kind: item.Text, Text: b.String()}}})
	}
	said := item.Item{Kind: item.Message, Role: item.Assistant}
	if b := p.said[sayText]; b != nil {
		said.Parts = append(said.Parts, item.Part{Kind: item.Text, Text: b.String()})
	}
	if b := p.said[sayRefusal]; b != nil {
		said.Parts = append(said.Parts, item.Part{Kind: item.Refusal, Text: b.String()})
	}
	if said.Parts != nil || len(p.calls) == 0 {
		items = append(items, said)
	}
	for _, c := range p.calls {
		if c.Complete {
			items = append(items, c.Item())
		}
	}
	return items
}

func turnID(number int) string { return fmt.Sprintf("chatcmpl-script-%d", number) }

func defaultStop(calls int) model.Stop {
	if calls > 0 {
		return model.StopCalls
	}
	return model.StopEnd
}

// sleep waits and reports whether ctx lasted as long.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func gone(ctx context.Context) error {
	return &model.Error{Class: model.Gone, Err: context.Cause(ctx)}
}

// asError is the failure as an adapter of the chat dialect reports it; begun
// says that it came inside an answer of status 200.
func (f failure) asError(begun bool) *model.Error {
	e := &model.Error{
		Class: f.class(), Status: f.status, Header: f.header(), Body: f.body(),
		RetryAfter: time.Duration(f.retryAfter) * time.Second, Message: f.words(),
	}
	if begun {
		e.Status, e.Header, e.RetryAfter = http.StatusOK, nil, 0
	}
	return e
}

func (f failure) class() model.Class {
	switch f.status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return model.Transient
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusGone:
		return model.Target
	}
	switch {
	case f.status >= 500:
		return model.Transient
	case strings.Contains(strings.ToLower(f.message), "maximum context length"):
		return model.TooLong
	}
	return model.Invalid
}

func (f failure) header() http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	return h
}

func (f failure) words() string {
	if f.message == "" {
		return strings.ToLower(http.StatusText(f.status))
	}
	return f.message
}

// body is the dialect's error object.
func (f failure) body() []byte {
	type object struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	kind := "invalid_request_error"
	switch {
	case f.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case f.status == http.StatusUnauthorized:
		kind = "authentication_error"
	case f.status >= 500:
		kind = "server_error"
	}
	body, _ := json.Marshal(map[string]object{"error": {f.words(), kind, nil, strconv.Itoa(f.status)}}) // strings: cannot fail
	return body
}
