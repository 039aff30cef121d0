package surface

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
)

// runIDHeader carries the id of the stored run.
const runIDHeader = "Turnpike-Run-Id"

// missingHeader names the org's servers whose tools the run does not have.
const missingHeader = "Turnpike-Missing-Servers"

// servedHeader names the target that the answer comes from, as provider/model.
const servedHeader = "Turnpike-Served-By"

// costHeader is in JSON answers of runs whose model has a price. Its value is a decimal number
// of US dollars. Streams do not have it: their cost is known at their end.
const costHeader = "Turnpike-Cost-Usd"

// limitHeader is in JSON answers of runs that a limit has ended. Its value is the limit, such as max_rounds.
const limitHeader = "Turnpike-Limit-Reached"

// Object makes the JSON object of an answer from the events of its run.
type Object interface {
	// Event adds e to the object. The Answer has taken it already. It does not get the end
	// of the run. An error ends the run.
	Event(e event.Event) error
	// Value returns the object, which is written as JSON. It is called at the end.
	Value() any
}

// Completer is an Object or an Encoder whose run may end well without the answer.
type Completer interface {
	// Complete returns why there is no answer, or nil. It is called after a run that has not
	// failed, before Value or Finish.
	Complete() error
}

// whole is the sink of a run whose answer is one JSON object.
type whole struct {
	Answer
	object Object
}

// Emit implements eventlog.Sink.
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
func (h *Handler) answerJSON(w http.ResponseWriter, r *http.Request, req *run.Request, caller caller.Caller, reply Reply) error {
	s := &whole{Answer: newAnswer(req, caller, reply.KeepsTexts, reply)}
	s.object = reply.Object(&s.Answer)
	if err := h.o.Runner.Run(r.Context(), req, s); err != nil {
		return unlessGone(r, err)
	}
	if req.Relay == nil { // which has no stored run
		w.Header().Set(runIDHeader, s.Started.RunID)
	}
	if len(s.Missing) > 0 {
		w.Header().Set(missingHeader, listOf(s.Missing))
	}
	if cost := s.End.Cost; !cost.IsZero() {
		w.Header().Set(costHeader, cost.String())
	}
	if limit := s.limitReached(); limit != "" {
		w.Header().Set(limitHeader, string(limit))
	}
	if s.paused != nil {
		return stillPaused(req, s.Started.RunID, *s.paused)
	}
	if s.waiting && req.WaitFor > 0 {
		return stillWaiting(req)
	}
	if !s.End.Reason.Failed() && s.served != (event.Target{}) {
		w.Header().Set(servedHeader, listOf([]string{s.served.String()}))
	}
	if s.End.Reason.Failed() {
		h.s.Errors.writeEnd(w, s.End, caller.Principal.Role.MaySeeAddresses())
		return nil
	}
	if c, is := s.object.(Completer); is {
		if err := c.Complete(); err != nil {
			return err
		}
	}
	if err := caller.Account.Acquire(s.kept); err != nil { // the object that is written
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

// stillWaiting is the error for a client whose request was held open as long as the org allows,
// and whose run still waits for approvals.
func stillWaiting(req *run.Request) *fault.Error {
	remedy := "GET /v1/approvals lists what has to be decided"
	if req.Key != nil {
		remedy = "send the request again with the same Idempotency-Key to wait on"
	}
	f := fault.New(fault.Conflict, "approval_pending", "tool calls of the run wait for approval longer than a request stays open (runtime.approval_hold); %s", remedy)
	f.RetryAfter = holdRetry
	return f
}

// stillPaused is the error for a client whose request was held open as long as the org allows, and whose
// run still waits for a raise of its limits.
func stillPaused(req *run.Request, runID string, e event.Paused) *fault.Error {
	remedy := "the run goes on when it is raised: GET /v1/runs/" + runID + " shows it, and GET /v1/runs/" + runID + "/events follows it"
	if req.Key != nil {
		remedy += "; or send the request again with the same Idempotency-Key to wait on"
	}
	f := fault.New(fault.Conflict, "run_paused", "the run waits at a limit (%s) longer than a request stays open (runtime.approval_hold): %s. "+
		"POST /v1/runs/%s/limits raises it; %s", e.Reason, e.Message, runID, remedy)
	f.RetryAfter = holdRetry
	return f
}

// holdRetry is how long a client is asked to wait before it sends a request again whose run waits
// for approvals.
const holdRetry = 5 * time.Second

// Follower reports the events of stored runs. Implemented by *run.Runner.
type Follower interface {
	Follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink) error
}

// Again makes the object of a stored run again, from its events, which tell reports. failure is
// the error object of a run that failed; nil = it did not. The error is that of tell.
func (x *Errors) Again(caller caller.Caller, finalOnly bool, asked Extensions, tell func(eventlog.Sink) error, object func(*Answer) Object) (made Object, failure []byte, err error) {
	s := &whole{Answer: Answer{account: caller.Account, passing: true, FinalOnly: finalOnly, Extensions: asked}}
	s.object = object(&s.Answer)
	if err := tell(s); err != nil {
		return nil, nil, err
	}
	if s.End.Reason.Failed() {
		failure = x.endFrame(s.End, caller.Principal.Role.MaySeeAddresses())
	}
	return s.object, failure, caller.Account.Acquire(s.kept)
}

// Replay streams a stored run again, from its events, which tell reports while they happen and
// after its end. The stream has all events; the encoder may leave out those that the client has.
// The error is that of tell, if nothing was sent.
func (h *Handler) Replay(w http.ResponseWriter, r *http.Request, caller caller.Caller, finalOnly bool, tell func(eventlog.Sink) error, encoder func(*Stream) Encoder) error {
	asked, err := h.AskedExtensions(r.Header, caller)
	if err != nil {
		return err
	}
	out := sse.NewWriter(w, sse.Options{Heartbeats: h.o.Heartbeats})
	defer out.Close()
	s := &Stream{Answer: Answer{account: caller.Account, passing: true, FinalOnly: finalOnly, Extensions: asked}, Live: true, out: out}
	s.encoder = encoder(s)
	err = tell(s)
	out.StopHeartbeats() // from here on no other goroutine begins the stream
	if c, is := s.encoder.(Completer); is && err == nil && s.waiting {
		s.missing = c.Complete()
	}
	switch {
	case err != nil && ClientLeft(r.Context()):
	case err != nil && !out.Started():
		return err
	case err != nil:
		h.logInternal(err)
		s.breakOff(h.s.Errors.Body(err), err)
	case s.waiting:
		s.encoder.Finish()
	case s.paused != nil: // as long as the org allows
		s.encoder.Fail(h.s.Errors.Body(stillPaused(&run.Request{}, s.Started.RunID, *s.paused)))
	case s.End.Reason.Failed():
		s.encoder.Fail(h.s.Errors.endFrame(s.End, caller.Principal.Role.MaySeeAddresses()))
	}
	return nil
}

// newAnswer returns the answer to a request, which has no texts of its own if passing.
func newAnswer(req *run.Request, caller caller.Caller, passing bool, reply Reply) Answer {
	a := Answer{
		account: caller.Account, passing: passing, Extensions: reply.extensions, turn: reply.Turn, required: reply.Required,
		Relayed: req.Relay != nil, FinalOnly: req.Policy.StreamMode == string(org.FinalOnly),
	}
	if req.Continues.Named || req.Continues.Resent {
		a.Session = req.Continues.ID
		a.Extensions.Session = a.Extensions.Session || req.Continues.Resent
	}
	return a
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

// Resumable is an Encoder whose clients continue a stream that breaks, after the last event that they have.
type Resumable interface {
	// Resumable reports whether the client of this stream can do so.
	Resumable() bool
}

// breakOff ends a stream with an error that is not the end of its run. If the run continues and the client can follow it
// elsewhere, no event is sent: the numbers of the next ones belong to the run.
func (s *Stream) breakOff(object []byte, err error) {
	c, is := s.encoder.(Resumable)
	if f, known := errors.AsType[*fault.Error](err); is && c.Resumable() && known && f.Code == fault.Unavailable {
		_ = s.out.Comment("the stream continues after the last event when the response is asked for again") // after an error the client has left
		return
	}
	s.encoder.Fail(object)
}

// StoredRuns has the runs of stored answers. Implemented by *run.Runner.
type StoredRuns interface {
	Follower
	conversation.Ends
	HasPieces(ctx context.Context, orgID, runID string) (bool, error)
}

// Segments are what runs store of conversations. Implemented by [run.Segments].
type Segments interface {
	Unfinished(ctx context.Context, caller caller.Caller, id string) (*run.Unfinished, error)
	Delete(ctx context.Context, caller caller.Caller, owner, id string) (bool, error)
	Forget(ctx context.Context, orgID string, ids []string) error
	Cancel(ctx context.Context, orgID string, c *journal.Conversation, inProgress bool, by org.Author) error
}

// obfuscationBlock is the number of bytes of which a text and its obfuscation have a multiple, as
// at OpenAI.
const obfuscationBlock = 16

// Obfuscation returns the text that hides the size of a piece of n bytes from those who see the
// sizes of encrypted packets. It follows from the run and the number of the event, so that a
// stream that is sent again has the same bytes; nobody who cannot read the stream knows the run.
func Obfuscation(runID string, sequence int64, n int) string {
	sum := sha256.Sum256([]byte(runID + " " + strconv.FormatInt(sequence, 10)))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:obfuscationBlock-n%obfuscationBlock]
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
	named   event.Target // in the header
	err     error        // the client has gone
	missing error        // why a run that ended well has no answer
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
func (h *Handler) answerStream(w http.ResponseWriter, r *http.Request, req *run.Request, caller caller.Caller, reply Reply) error {
	out := sse.NewWriter(w, sse.Options{Heartbeats: h.o.Heartbeats})
	defer out.Close()
	live := req.Policy.Live != nil
	s := &Stream{Answer: newAnswer(req, caller, live || reply.KeepsTexts, reply), Live: live, out: out}
	s.Started.Model = req.Model
	s.encoder = reply.Encoder(s)
	mayAddress := caller.Principal.Role.MaySeeAddresses()
	err := h.o.Runner.Run(r.Context(), req, s)
	out.StopHeartbeats() // from here on no other goroutine begins the stream
	switch begun := out.Started(); {
	case s.missing != nil && !begun:
		return s.missing
	case s.missing != nil:
		s.encoder.Fail(h.s.Errors.Body(s.missing))
	case err == nil && s.paused != nil && !begun:
		return stillPaused(req, s.Started.RunID, *s.paused)
	case err == nil && s.paused != nil:
		s.encoder.Fail(h.s.Errors.Body(stillPaused(req, s.Started.RunID, *s.paused)))
	case err == nil && s.waiting && req.WaitFor > 0 && !begun:
		return stillWaiting(req)
	case err == nil && s.waiting && req.WaitFor > 0:
		s.encoder.Fail(h.s.Errors.Body(stillWaiting(req)))
	case err == nil && s.waiting:
		s.encoder.Finish()
	case err != nil && !begun:
		return unlessGone(r, err)
	case err != nil && ClientLeft(r.Context()):
	case err != nil:
		h.logInternal(err)
		s.breakOff(h.s.Errors.Body(err), err)
	case s.End.Reason.Failed() && !begun:
		w.Header().Del(servedHeader) // of an earlier round
		h.s.Errors.writeEnd(w, s.End, mayAddress)
	case s.End.Reason.Failed():
		s.encoder.Fail(h.s.Errors.endFrame(s.End, mayAddress))
	}
	return nil
}

// Emit implements eventlog.Sink. How a failure is told depends on whether the stream has
// begun, which is settled after the run.
func (s *Stream) Emit(_ event.Position, e event.Event) error {
	if err := s.add(e); err != nil {
		return err
	}
	switch e := e.(type) {
	case event.Finished:
		if c, is := s.encoder.(Completer); is && !e.Reason.Failed() {
			s.missing = c.Complete()
		}
		if !e.Reason.Failed() && s.missing == nil {
			s.encoder.Finish()
		}
		return s.err
	case event.Started:
		if !s.Relayed {
			s.out.SetHeader(runIDHeader, e.RunID)
		}
	case event.RoundStarted:
		if len(e.Missing) > 0 {
			s.out.SetHeader(missingHeader, listOf(e.Missing))
		}
	case event.CallDelta, event.Citation, event.NativeItem, event.NativeProgress, event.ReasoningDelta,
		event.RefusalDelta, event.RoundDone, event.TextDelta: // the target has answered
		if s.named != s.served {
			s.named = s.served
			s.out.SetHeader(servedHeader, listOf([]string{s.served.String()}))
		}
	case event.ApprovalDecided, event.ItemDone, event.Compacted, event.HookRan, event.LimitsRaised, event.ModelFallback, event.Paused, event.RelayBody, event.RelayHead,
		event.ToolDone, event.ToolStarted, event.ToolsListed, event.Waiting: // the encoder decides
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
	if ClientLeft(r.Context()) {
		return nil
	}
	return err
}

// ClientLeft reports whether the request with ctx has ended because its client has left. If the
// gateway has ended it, the cause is a [fault.Error], and the client still hears it.
func ClientLeft(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.As(context.Cause(ctx), new(*fault.Error))
}
