package turnpiketest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
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
	items  []item.Item // in the order in which they began, also calls that were cut off
	calls  []model.Call
	stop   model.Stop
	usage  model.Usage
	begun  bool // something has come
}

// play performs the turn's steps. Beside an error it returns what had come
// before it.
func (p *performance) play(ctx context.Context, t turn) (*model.Turn, error) {
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

func (p *performance) step(ctx context.Context, s step) error {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	switch s.verb {
	case sayText, sayReasoning, sayRefusal:
		return p.say(s)
	case makeCall:
		return p.call(s.call)
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

// say adds to the reasoning or to the message of the turn.
func (p *performance) say(s step) error {
	p.begun = true
	d := model.Delta{Kind: model.TextDelta, Text: s.text}
	said, part := item.Item{Kind: item.Message, Role: item.Assistant}, item.Text
	switch s.verb {
	case sayReasoning:
		d.Kind, said = model.ReasoningDelta, item.Item{Kind: item.Reasoning}
	case sayRefusal:
		d.Kind, part = model.RefusalDelta, item.Refusal
	}
	if d.Item = slices.IndexFunc(p.items, func(i item.Item) bool { return i.Kind == said.Kind }); d.Item < 0 {
		d.Item = len(p.items)
		p.items = append(p.items, said)
	}
	parts := &p.items[d.Item].Parts
	if d.Part = slices.IndexFunc(*parts, func(p item.Part) bool { return p.Kind == part }); d.Part < 0 {
		d.Part = len(*parts)
		*parts = append(*parts, item.Part{Kind: part})
	}
	(*parts)[d.Part].Text += s.text
	return p.emit(d)
}

func (p *performance) call(c model.Call) error {
	p.begun = true
	p.calls = append(p.calls, c)
	p.items = append(p.items, c.Item())
	d := model.Delta{Kind: model.CallDelta, Item: len(p.items) - 1, CallID: c.ID, Name: c.Name}
	pieces := halves(c.Arguments)
	if len(pieces) == 0 {
		return p.emit(d)
	}
	for _, d.Text = range pieces {
		if err := p.emit(d); err != nil {
			return err
		}
		d.CallID, d.Name = "", ""
	}
	return nil
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
		ID: turnID(p.number), Model: p.model, Items: p.transcript(), Calls: p.calls,
		Stop: p.stop, RawStop: string(p.stop), Usage: p.usage,
	}
	return t
}

// transcript returns what was said as entries of a transcript: without calls that
// were cut off.
func (p *performance) transcript() []item.Item {
	var out []item.Item
	calls := p.calls
	for _, it := range p.items {
		if it.Kind == item.ToolCall {
			c := calls[0]
			calls = calls[1:]
			if !c.Complete {
				continue
			}
		}
		out = append(out, it)
	}
	if out == nil && p.calls == nil {
		out = []item.Item{{Kind: item.Message, Role: item.Assistant}}
	}
	return out
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
		Class: f.class(), Status: f.status, Header: f.header(), Body: f.body(), Dialect: model.DialectChat,
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

// body is the error object of the chat dialect.
func (f failure) body() []byte {
	kind := "invalid_request_error"
	switch {
	case f.status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case f.status == http.StatusUnauthorized:
		kind = "authentication_error"
	case f.status >= 500:
		kind = "server_error"
	}
	return openAIError(f.words(), kind, "", strconv.Itoa(f.status))
}
