package turnpiketest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/script"
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
func (p *performance) play(ctx context.Context, t script.Turn) (*model.Turn, error) {
	for _, s := range t.Steps {
		if err := p.step(ctx, s); err != nil {
			p.mark(false)
			return p.partial(), err
		}
	}
	if p.stop == "" {
		p.stop = script.DefaultStop(len(p.calls))
	}
	p.mark(p.stop != model.StopLength)
	return p.turn(), nil
}

func (p *performance) step(ctx context.Context, s script.Step) error {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	switch s.Verb {
	case script.SayText, script.SayReasoning, script.SayRefusal:
		return p.say(s)
	case script.MakeCall:
		return p.call(s.Call)
	case script.SetStop:
		p.stop = s.Stop
	case script.SetUsage:
		p.usage = s.Usage
	case script.Pause:
		if !sleep(ctx, s.Wait) {
			return gone(ctx)
		}
	case script.Hang:
		<-ctx.Done()
		return gone(ctx)
	case script.Cut:
		return &model.Error{Class: model.Transient, Status: http.StatusOK, Message: "the stream ended before the turn did", Err: io.ErrUnexpectedEOF}
	case script.Fail:
		return s.Failure.AsError(p.begun)
	}
	return nil
}

// say adds to the reasoning or to the message of the turn.
func (p *performance) say(s script.Step) error {
	p.begun = true
	d := model.Delta{Kind: model.TextDelta, Text: s.Text}
	said, part := item.Item{Kind: item.Message, Role: item.Assistant}, item.Text
	switch s.Verb {
	case script.SayReasoning:
		d.Kind, said = model.ReasoningDelta, item.Item{Kind: item.Reasoning}
	case script.SayRefusal:
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
	(*parts)[d.Part].Text += s.Text
	return p.emit(d)
}

func (p *performance) call(c model.Call) error {
	p.begun = true
	p.calls = append(p.calls, c)
	p.items = append(p.items, c.Item())
	d := model.Delta{Kind: model.CallDelta, Item: len(p.items) - 1, CallID: c.ID, Name: c.Name}
	pieces := script.Halves(c.Arguments)
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
		ID: script.TurnID(p.number), Model: p.model, Items: p.transcript(), Calls: p.calls,
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
