package turnpike

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/turnpike-gateway/turnpike/event"
)

// Stream is a run that is read while it happens. It begins with the first range over Events or Text, or
// with Result: a stream that nobody reads starts nothing. It is read once. ID and Result are safe
// for concurrent use.
type Stream struct {
	ctx     context.Context
	id      string
	perform func(ctx context.Context, sink sink) (*Result, error)

	mu       sync.Mutex // guards begun and position
	begun    bool
	position event.Position

	done   chan struct{} // closed when the run has left, which has set what follows
	result *Result
	err    error
}

func newStream(ctx context.Context, id string, perform func(context.Context, sink) (*Result, error)) *Stream {
	return &Stream{ctx: ctx, id: id, perform: perform, done: make(chan struct{})}
}

// failedStream returns a stream of a run that cannot begin.
func failedStream(err error) *Stream {
	return newStream(context.Background(), "", func(context.Context, sink) (*Result, error) { return nil, err })
}

// ID returns the id of the run, also before it begins; "" for one that cannot begin.
func (s *Stream) ID() string { return s.id }

// begin reports whether the caller is the first who reads the stream.
func (s *Stream) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.begun
	s.begun = true
	return first
}

// Events yields the events of the run, of every round. The last one is event.Finished, or
// event.Waiting for a run that waits for approvals. If the run has an error, a last pair has it and no
// event. Leaving the loop cancels the run, and returns when nothing of it is left. A second range
// yields ErrConsumed.
func (s *Stream) Events() iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if !s.begin() {
			yield(nil, ErrConsumed)
			return
		}
		if s.play(yield) && s.err != nil {
			yield(nil, s.err)
		}
	}
}

// errLeft is the cause of the end of a run whose reader has left.
var errLeft = errors.New("the reader has left the stream")

// play performs the run and yields its events. It returns false if the reader has left.
func (s *Stream) play(yield func(event.Event, error) bool) (stays bool) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	events := make(chan happened)
	go func() {
		defer close(s.done)
		defer close(events)
		s.result, s.err = s.perform(ctx, func(at event.Position, e event.Event) {
			events <- happened{at, e} // is read until it is closed
		})
	}()
	defer func() { // also if the body of the loop panics
		cancel(errLeft)
		for range events {
		}
		<-s.done
	}()
	for e := range events {
		s.at(e.at)
		if !yield(e.event, nil) {
			return false
		}
	}
	return true
}

// sink gets the events of a run, one after the other.
type sink func(at event.Position, e event.Event)

type happened struct {
	at    event.Position
	event event.Event
}

// at notes the position of the event that is yielded.
func (s *Stream) at(p event.Position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.position = p
}

// Position returns the position of the event that Events has yielded last, for [Agent.Follow]. Events of
// durable runs have positions that never change.
func (s *Stream) Position() event.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

// Text yields the pieces of the model's text, of every round. Errors and leaving are as with Events.
func (s *Stream) Text() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for e, err := range s.Events() {
			if err != nil {
				yield("", err)
				return
			}
			if text, ok := e.(event.TextDelta); ok && !yield(text.Text, nil) {
				return
			}
		}
	}
}

// Result returns how the run ended. It performs the run if nobody reads the stream; otherwise it waits
// for the end, so that it must not be called inside of the loop. If the loop was left, the error is
// an [*AbortError] with the steps.
func (s *Stream) Result() (*Result, error) {
	if s.begin() {
		func() {
			defer close(s.done)
			s.result, s.err = s.perform(s.ctx, nil)
		}()
	}
	<-s.done
	return s.result, s.err
}
