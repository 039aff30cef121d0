package surface

import (
	"net/http"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
)

// runIDHeader carries the id of the stored run.
const runIDHeader = "Turnpike-Run-Id"

// Emit implements run.Sink, for an answer that is one JSON object.
func (a *Answer) Emit(_ event.Position, e event.Event) error { return a.add(e) }

// answerJSON runs to the end and answers with one object.
func (h *Handler) answerJSON(w http.ResponseWriter, r *http.Request, req *run.Request, caller run.Caller, object func(*Answer) any) error {
	a := &Answer{account: caller.Account}
	if err := h.o.Runner.Run(r.Context(), req, a); err != nil {
		return unlessGone(r, err)
	}
	if req.Policy.Grade != loop.Relay { // which has no stored run
		w.Header().Set(runIDHeader, a.Started.RunID)
	}
	if a.End.Reason.Failed() {
		h.s.Errors.writeEnd(w, a.End, caller.Principal.Role.MaySeeAddresses())
		return nil
	}
	if err := caller.Account.Charge(a.kept()); err != nil { // the object that is written
		return err
	}
	body, err := Marshal(object(a))
	if err != nil {
		return err
	}
	a.Rounds = nil // a client that reads slowly holds only the object
	write(w, http.StatusOK, append(body, '\n'))
	return nil
}

// Encoder writes the events of a run to a [Stream] in the form of its API. The Stream
// calls its methods one at a time.
type Encoder interface {
	// Event sends what e adds to the answer, which has taken it already. It does not get
	// the end of the run.
	Event(e event.Event)
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
	// Relayed says that the run is one model call whose tool calls are the client's.
	// They are sent as they come.
	Relayed bool

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
func (h *Handler) answerStream(w http.ResponseWriter, r *http.Request, req *run.Request, caller run.Caller, encoder func(*Stream) Encoder) error {
	out := sse.NewWriter(w, sse.Options{Heartbeats: h.o.Heartbeats})
	defer out.Close()
	live := req.Policy.Live != nil
	s := &Stream{Answer: Answer{account: caller.Account, passing: live}, Live: live, Relayed: req.Policy.Grade == loop.Relay, out: out}
	s.Started.Model = req.Model
	s.encoder = encoder(s)
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
	s.encoder.Event(e)
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
