package surface

import (
	"context"
	"net/http"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
)

// runIDHeader carries the id of the stored run.
const runIDHeader = "Turnpike-Run-Id"

// Object makes the JSON object of an answer from the events of its run.
type Object interface {
	// Event adds e to the object. The Answer has taken it already. It does not get the end
	// of the run. An error ends the run.
	Event(e event.Event) error
	// Value returns the object, which is written as JSON. It is called at the end.
	Value() any
}

// whole is the sink of a run whose answer is one JSON object.
type whole struct {
	Answer
	object Object
}

// Emit implements run.Sink.
func (s *whole) Emit(_ event.Position, e event.Event) error {
	if err := s.add(e); err != nil {
		return err
	}
	if _, ended := e.(event.Finished); ended {
		return nil
	}
	return s.object.Event(e)
}

// answerJSON runs to the end and answers with one object.
func (h *Handler) answerJSON(w http.ResponseWriter, r *http.Request, req *run.Request, caller run.Caller, reply Reply) error {
	s := &whole{Answer: newAnswer(req, caller, reply.KeepsTexts)}
	s.object = reply.Object(&s.Answer)
	if err := h.o.Runner.Run(r.Context(), req, s); err != nil {
		return unlessGone(r, err)
	}
	if req.Policy.Grade != loop.Relay { // which has no stored run
		w.Header().Set(runIDHeader, s.Started.RunID)
	}
	if s.End.Reason.Failed() {
		h.s.Errors.writeEnd(w, s.End, caller.Principal.Role.MaySeeAddresses())
		return nil
	}
	if err := caller.Account.Charge(s.kept); err != nil { // the object that is written
		return err
	}
	body, err := Marshal(s.object.Value())
	if err != nil {
		return err
	}
	s.object, s.Rounds = nil, nil // a client that reads slowly holds only the bytes
	write(w, http.StatusOK, append(body, '\n'))
	return nil
}

// Follower reports the events of stored runs. Implemented by *run.Runner.
type Follower interface {
	Follow(ctx context.Context, f run.Follow, sink run.Sink) error
}

// Again makes the object of a stored run again, from its events. failure is the error object
// of a run that failed; nil = it did not. The error is that of [run.Runner.Follow].
func (x *Errors) Again(ctx context.Context, from Follower, caller run.Caller, runID string, finalOnly bool, object func(*Answer) Object) (made Object, failure []byte, err error) {
	s := &whole{Answer: Answer{account: caller.Account, passing: true, FinalOnly: finalOnly}}
	s.object = object(&s.Answer)
	if err := from.Follow(ctx, run.Follow{Org: caller.Org.ID, RunID: runID, Account: caller.Account, Final: true, ToWaiting: true}, s); err != nil {
		return nil, nil, err
	}
	if s.End.Reason.Failed() {
		failure = x.endFrame(s.End, caller.Principal.Role.MaySeeAddresses())
	}
	return s.object, failure, caller.Account.Charge(s.kept)
}

// newAnswer returns the answer to a request, which has no texts of its own if passing.
func newAnswer(req *run.Request, caller run.Caller, passing bool) Answer {
	return Answer{
		account: caller.Account, passing: passing,
		Relayed: req.Policy.Grade == loop.Relay, FinalOnly: req.Policy.StreamMode == string(org.FinalOnly),
	}
}

// Encoder writes the events of a run to a [Stream] in the form of its API. The Stream
// calls its methods one at a time.
type Encoder interface {
	// Event sends what e adds to the answer, which has taken it already. It does not get
	// the end of the run. An error ends the run.
	Event(e event.Event) error
	// Finish ends the answer. What was not sent is in the Stream's Answer.
	Finish()
	// Fail ends a stream that has begun with the error object of the API.
	Fail(object []byte)
}

// Stream is the sink of a run whose answer is a stream of server-sent events. Until the
// first event has been sent, a failure is still an ordinary error with its status.
type Stream struct {
	Answer
	// Live says that deltas are sent as they come. Otherwise nothing is sent before the
	// end, and the Answer has all texts.
	Live bool

	out     *sse.Writer
	encoder Encoder
	err     error // the client has gone
}

// liveDeltas are the kinds of delta that a live stream sends. In a relay every call is
// the client's. In a loop the client's calls are sent at the end, when those of the
// gateway are done.
func liveDeltas(relayed bool) []model.DeltaKind {
	kinds := []model.DeltaKind{model.TextDelta, model.ReasoningDelta, model.RefusalDelta}
	if relayed {
		kinds = append(kinds, model.CallDelta)
	}
	return kinds
}

// answerStream runs and answers with a stream.
func (h *Handler) answerStream(w http.ResponseWriter, r *http.Request, req *run.Request, caller run.Caller, reply Reply) error {
	out := sse.NewWriter(w, sse.Options{Heartbeats: h.o.Heartbeats})
	defer out.Close()
	live := req.Policy.Live != nil
	s := &Stream{Answer: newAnswer(req, caller, live || reply.KeepsTexts), Live: live, out: out}
	s.Started.Model = req.Model
	s.encoder = reply.Encoder(s)
	mayAddress := caller.Principal.Role.MaySeeAddresses()
	err := h.o.Runner.Run(r.Context(), req, s)
	out.StopHeartbeats() // from here on no other goroutine begins the stream
	switch begun := out.Started(); {
	case err == nil && s.waiting:
		s.encoder.Finish()
	case err != nil && !begun:
		return unlessGone(r, err)
	case err != nil && r.Context().Err() != nil: // the client has gone
	case err != nil:
		h.logInternal(err)
		s.encoder.Fail(h.s.Errors.Body(err))
	case s.End.Reason.Failed() && !begun:
		h.s.Errors.writeEnd(w, s.End, mayAddress)
	case s.End.Reason.Failed():
		s.encoder.Fail(h.s.Errors.endFrame(s.End, mayAddress))
	}
	return nil
}

// Emit implements run.Sink. How a failure is told depends on whether the stream has
// begun, which is settled after the run.
func (s *Stream) Emit(_ event.Position, e event.Event) error {
	if err := s.add(e); err != nil {
		return err
	}
	switch e := e.(type) {
	case event.Finished:
		if !e.Reason.Failed() {
			s.encoder.Finish()
		}
		return s.err
	case event.Started:
		if !s.Relayed {
			s.out.SetHeader(runIDHeader, e.RunID)
		}
	}
	if err := s.encoder.Event(e); err != nil {
		return err
	}
	return s.err
}

// Send sends an event with data that is JSON or a mark of the API. Name may be empty.
// After an error, which ends the run, it does nothing.
func (s *Stream) Send(name string, data []byte) {
	if s.err == nil {
		s.err = s.out.Named(name, data)
	}
}

// SendJSON sends an event with v as JSON.
func (s *Stream) SendJSON(name string, v any) {
	data, err := Marshal(v)
	if err != nil && s.err == nil {
		s.err = err
	}
	s.Send(name, data)
}

// PrependJSON sends an event with v as JSON in one write with the next event, in front of it.
func (s *Stream) PrependJSON(v any) {
	data, err := Marshal(v)
	if err != nil && s.err == nil {
		s.err = err
	}
	if s.err == nil {
		s.out.Prepend(data)
	}
}

// Sizes of pieces of text, in bytes.
const (
	// MaxPiece is the most text that one event of a stream carries: a client that reads
	// slowly holds no more than one event.
	MaxPiece = 16 << 10
	// SmallPiece is about how much text an event of a stream that is not live carries.
	SmallPiece = 64
)

// Pieces calls send with the text in pieces of about size bytes. A piece never ends
// inside a character.
func Pieces(text string, size int, send func(string)) {
	for text != "" {
		piece := text[:pieceEnd(text, size)]
		text = text[len(piece):]
		send(piece)
	}
}

// pieceEnd returns where a piece of about size bytes ends.
func pieceEnd(text string, size int) int {
	if len(text) <= size {
		return len(text)
	}
	n := size
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	if n == 0 {
		return size
	}
	return n
}

// unlessGone returns err, unless the client has left and hears nothing.
func unlessGone(r *http.Request, err error) error {
	if r.Context().Err() != nil {
		return nil
	}
	return err
}
