package run

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/model"
)

// relayer is a model that passes on.
type relayer struct {
	speaker
	body io.ReadCloser
	err  error
}

// Relays implements relay.Model.
func (r *relayer) Relays(string) bool { return true }

// Relay implements relay.Model.
func (r *relayer) Relay(context.Context, *relay.Request) (*relay.Response, error) {
	if r.err != nil {
		return nil, r.err
	}
	return &relay.Response{Status: 418, Body: r.body, Length: -1}, nil
}

// closer notes that it was closed.
type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func relayStage(t *testing.T, m model.Model) *stage {
	s := newStage(t, nil)
	s.req = &Request{
		Who:   Who{Org: "o", Principal: "p", Surface: "test"},
		Input: Input{Model: "m", Targets: []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: m}}},
		Relay: &Relay{Raw: &relay.Request{Path: "/x", Body: []byte("{}")}},
	}
	s.journal.fail = func(loop.Body) error { return errors.New("a relay has no stored run") }
	return s
}

func TestARelayPassesBytesOnAndStoresNothing(t *testing.T) {
	body := &closer{Reader: strings.NewReader(strings.Repeat("x", 100_000))}
	s := relayStage(t, &relayer{body: body})
	if err := s.runner.Run(t.Context(), s.req, s.sink); err != nil {
		t.Fatal(err)
	}
	head, ok := s.sink.events[1].(event.RelayHead)
	total := 0
	for _, e := range s.sink.events[2:] {
		if b, ok := e.(event.RelayBody); ok {
			total += len(b.Data)
		}
	}
	if end := s.sink.end(t); end.Reason != event.Complete || !ok || head.Status != 418 || total != 100_000 || !body.closed {
		t.Errorf("%+v, head %+v, %d bytes, closed %t", end, head, total, body.closed)
	}
}

func TestARelayThatFailsIsNotRepeated(t *testing.T) {
	broken := io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }))
	for name, m := range map[string]model.Model{
		"before the answer":         &relayer{err: &model.Error{Class: model.Transient}},
		"in the answer":             &relayer{body: &closer{Reader: broken}},
		"for want of the ability":   &speaker{turns: []answer{says("never")}},
		"with an error of any type": &relayer{err: errors.New("odd")},
	} {
		t.Run(name, func(t *testing.T) {
			s := relayStage(t, m)
			if err := s.runner.Run(t.Context(), s.req, s.sink); err != nil {
				t.Fatal(err)
			}
			if end := s.sink.end(t); end.Reason != event.ModelError {
				t.Errorf("%+v", end)
			}
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestARelayWhoseClientLeavesIsCancelled(t *testing.T) {
	s := relayStage(t, &relayer{body: &closer{Reader: strings.NewReader("x")}})
	s.sink.fail = func(e event.Event) error {
		if _, ok := e.(event.RelayBody); ok {
			return errors.New("broken pipe")
		}
		return nil
	}
	if err := s.runner.Run(t.Context(), s.req, s.sink); err != nil {
		t.Fatal(err)
	}
	if end := s.sink.end(t); end.Reason != event.CallerGone {
		t.Errorf("%+v", end)
	}
}
