package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxPreview is how many characters of a result the events have.
const maxPreview = 200

// Statuses of runs.
const (
	runRunning   = "running"
	runWaiting   = "waiting"
	runCompleted = "completed"
	runFailed    = "failed"
	runCancelled = "cancelled"
)

// doomLoop begins the error of a run that has repeated itself.
const doomLoop = "Doom loop detected: "

// call is a tool call of a run on the wire.
type call struct {
	Step       int             `json:"step"`
	Name       string          `json:"tool_name"`
	ID         string          `json:"call_id"`
	Arguments  json.RawMessage `json:"arguments"`
	Preview    string          `json:"result_preview"`
	Result     *string         `json:"result,omitempty"` // whole, in the record of the run; nil = it is not there
	IsError    bool            `json:"is_error"`
	DurationMS int64           `json:"duration_ms"` // rounded up; 0 = it was not executed
}

// target is a model of a provider that a run has called, on the wire.
type target struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	Calls    int    `json:"model_calls"`
	Answers  int    `json:"answers"` // how many of the calls have ended with an answer
}

// usage is what a run has used, on the wire.
type usage struct {
	Prompt     int64       `json:"prompt_tokens"`
	Completion int64       `json:"completion_tokens"`
	Total      int64       `json:"total_tokens"`
	Cost       *money.Nano `json:"cost_usd,omitempty"` // a decimal number
}

func wireUsage(u model.Usage, cost tool.Money) usage {
	out := usage{Prompt: u.Input, Completion: u.Output, Total: u.Total}
	if !cost.IsZero() {
		out.Cost = new(money.Nano(cost.Nano()))
	}
	return out
}

// projection makes the frames of a run of its events, in one pass from the first one on, so that the same
// events make the same frames whenever they are followed. It keeps what the end of the run repeats.
type projection struct {
	turn    agent.SessionTurn
	charge  func(bytes int) error                // for what is kept
	reveals bool                                 // the caller may see addresses
	whole   bool                                 // results are kept, for the record
	send    func(id string, frame ordered) error // nil = the frames are not sent
	refuse  func(event.Finished) error           // for a run that the outbound policy ends before the first frame; nil = it has frames, too

	begun     bool          // start was sent
	early     []event.Event // that came before start: Compacted and HookRan
	toolless  bool          // no tools are assigned: the answer streams as chunks
	answered  bool          // the model call of the step has ended with an answer
	started   event.Started
	missing   []string
	step      int // from 1; 0 = none yet
	open      bool
	finish    model.Stop
	called    bool // the step has tool calls
	text      strings.Builder
	kept      int  // of text: what no other attempt at the model call replaces
	continued int  // how often the rest of the step's answer was asked for
	reactive  bool // the step's model call was made, and has no answer
	compacted bool // the prompt of the step was compacted after a model call
	reasoning strings.Builder
	calls     []call
	asked     map[string]json.RawMessage // the arguments of calls that have waited, by key
	why       map[string]string          // the messages of hooks that ask for approval, by the key of the call
	waits     []string                   // ids of the approvals that are asked for
	targets   []target
	target    int    // index into targets of the latest model call
	model     string // that has answered last; without an answer the one that was called last
	used      usage  // up to the latest wait, or the end
	end       *event.Finished
	when      time.Time // of the event that the next frame is about
	seq, part int
}

// Emit implements eventlog.Sink.
func (p *projection) Emit(at event.Position, e event.Event) error {
	p.part = 0
	if t := event.Time(e); !t.IsZero() {
		p.when = t
	}
	emit := func(kind string, members any) error { return p.frame(at, kind, members) }
	if c, is := e.(event.Compacted); is && !p.begun {
		p.early = append(p.early, c)
		return nil
	}
	if h, is := e.(event.HookRan); is && !p.begun {
		p.early = append(p.early, h)
		return p.charge(eventlog.EventSize(h))
	}
	if end, is := e.(event.Finished); is && end.Reason == event.Blocked && !p.begun && p.refuse != nil {
		if err := p.refuse(end); err != nil {
			return err
		}
	}
	if err := p.begin(e, emit); err != nil {
		return err
	}
	switch e := e.(type) {
	case event.Started:
		p.started = e
	case event.RoundStarted:
		if err := p.calling(e.Target); err != nil {
			return err
		}
		return p.round(e, emit)
	case event.ModelFallback:
		p.reactive = false
		return emit("model_fallback", fallbackFrame{e.From.String(), e.To.String()})
	case event.TextDelta:
		return p.say(&p.text, e.Text, "content_delta", emit)
	case event.RefusalDelta:
		return p.say(&p.text, e.Text, "content_delta", emit)
	case event.ReasoningDelta:
		return p.say(&p.reasoning, e.Text, "reasoning_delta", emit)
	case event.RoundDone:
		p.finish, p.reactive, p.answered = e.Stop, false, true
		if len(p.targets) > 0 {
			p.targets[p.target].Answers++
			p.model = p.targets[p.target].Model
		}
		if p.reasoning.Len() > 0 {
			return emit("reasoning", reasoningFrame{p.step, p.reasoning.String()})
		}
	case event.ToolStarted:
		return p.call(e.Key, e.Name, e.Arguments, emit)
	case event.ToolDone:
		return p.answer(e, emit)
	case event.Waiting:
		return p.wait(e, emit)
	case event.ApprovalDecided: // the others still wait
		p.waits = slices.DeleteFunc(p.waits, func(id string) bool { return id == e.ID })
	case event.Compacted:
		return p.compact(e, emit)
	case event.HookRan:
		return p.hook(e, emit)
	case event.Finished:
		return p.finished(e, emit)
	case event.CallDelta, event.Citation, event.ItemDone, event.LimitsRaised, event.NativeItem, event.NativeProgress, event.Paused,
		event.RelayBody, event.RelayHead, event.ToolsListed: // no frame shows them
	}
	return nil
}

// emitter sends a frame.
type emitter func(kind string, members any) error

// begin sends start in front of the first frame: only the first model call says which servers are missing.
func (p *projection) begin(e event.Event, emit emitter) error {
	if _, first := e.(event.Started); first || p.begun {
		return nil
	}
	p.begun = true
	if r, is := e.(event.RoundStarted); is {
		p.missing, p.toolless = r.Missing, r.NoTools
	}
	if p.missing == nil {
		p.missing = []string{}
	}
	defer func(now time.Time) { p.when = now }(p.when)
	p.when = p.started.At
	err := emit("start", startFrame{p.started.RunID, p.turn.Session, nil, p.turn.Reasoning, p.missing})
	for _, e := range p.early {
		p.when = event.Time(e)
		if c, is := e.(event.Compacted); is && err == nil {
			err = p.compact(c, emit)
		}
		if h, is := e.(event.HookRan); is && err == nil {
			err = p.hook(h, emit)
		}
	}
	p.early = nil
	return err
}

// calling notes that a target is called.
func (p *projection) calling(t event.Target) error {
	p.target = slices.IndexFunc(p.targets, func(one target) bool { return one.Provider == t.Provider && one.Model == t.Model })
	if p.target < 0 {
		const own = 64
		if err := p.charge(own + len(t.Provider) + len(t.Model)); err != nil {
			return err
		}
		p.target = len(p.targets)
		p.targets = append(p.targets, target{Provider: t.Provider, Model: t.Model})
	}
	p.targets[p.target].Calls++
	if !slices.ContainsFunc(p.targets, func(one target) bool { return one.Answers > 0 }) {
		p.model = t.Model
	}
	return nil
}

// hook sends what a hook has decided.
func (p *projection) hook(e event.HookRan, emit emitter) error {
	if e.Asked && e.Message != "" {
		if err := p.charge(len(e.Message)); err != nil {
			return err
		}
		if p.why == nil {
			p.why = map[string]string{}
		}
		p.why[e.Key] = e.Message
	}
	took := float64(e.Duration.Microseconds()) / 1000
	return emit("hook_result", hookFrame{e.ID, e.Position, e.Event, e.Status, e.Modified, e.Blocked, took, e.Message})
}

// compact sends that the prompt was made shorter: before a step, or in one after its model call was refused.
func (p *projection) compact(e event.Compacted, emit emitter) error {
	kind := "proactive_compact"
	if p.compacted = p.reactive; p.reactive {
		kind = "reactive_compact"
	} else if err := p.closeStep(emit); err != nil {
		return err
	}
	return emit(kind, compactFrame{e.Before, e.After, !e.Failed && e.After < e.Before})
}

func (p *projection) round(e event.RoundStarted, emit emitter) error {
	p.reasoning.Reset()
	if e.Round+1 == p.step {
		return p.again(e, emit)
	}
	if err := p.closeStep(emit); err != nil {
		return err
	}
	p.step, p.open, p.called, p.finish, p.reactive = e.Round+1, true, false, "", true
	p.kept, p.continued, p.compacted, p.answered = 0, 0, false, false
	p.text.Reset()
	return emit("step_started", stepFrame{p.step, p.step == p.turn.Rounds})
}

// again sends that the model is called again in the step: for the rest of an answer that was cut off, or because
// the call has failed.
func (p *projection) again(e event.RoundStarted, emit emitter) error {
	reason := "rate_limit"
	if p.compacted {
		reason = "prompt_too_long"
	}
	p.reactive, p.compacted = true, false
	if e.Continues > p.continued {
		p.continued, p.kept = e.Continues, p.text.Len()
		if err := emit("step_reset", resetFrame{"output_recovery"}); err != nil {
			return err
		}
		return emit("output_recovery", recoveryFrame{e.Continues})
	}
	text := p.text.String()[:p.kept]
	p.text.Reset()
	p.text.WriteString(text)
	return emit("step_reset", resetFrame{reason})
}

// closeStep sends that the step is completed, when its calls are done. A step without an answer is not.
func (p *projection) closeStep(emit emitter) error {
	if !p.open {
		return nil
	}
	p.open = false
	if !p.answered {
		return nil
	}
	return emit("step_completed", completedFrame{p.step, p.finish, p.called})
}

func (p *projection) say(into *strings.Builder, text, kind string, emit emitter) error {
	if err := p.charge(2 * len(text)); err != nil {
		return err
	}
	into.WriteString(text)
	if kind == "content_delta" && p.toolless {
		return emit("chunk", chunkFrame{text})
	}
	return emit(kind, deltaFrame{text})
}

func (p *projection) call(key, name string, arguments json.RawMessage, emit emitter) error {
	if !json.Valid(arguments) {
		arguments = json.RawMessage("{}")
	}
	if err := p.charge(2*len(arguments) + maxPreview*utf8.UTFMax); err != nil {
		return err
	}
	p.called = true
	p.calls = append(p.calls, call{Step: p.step, Name: name, ID: key, Arguments: arguments})
	return emit("tool_call", callFrame{p.step, name, arguments, key})
}

func (p *projection) answer(e event.ToolDone, emit emitter) error {
	at := -1
	for i := range p.calls {
		if p.calls[i].ID == e.Key {
			at = i
		}
	}
	if at < 0 { // it was not executed
		arguments := p.asked[e.Key]
		if arguments == nil {
			arguments = json.RawMessage(e.Arguments)
		}
		if err := p.call(e.Key, e.Name, arguments, emit); err != nil {
			return err
		}
		at = len(p.calls) - 1
	}
	c := &p.calls[at]
	c.Preview, c.IsError = preview(e.Text), e.Outcome != event.CallOK && e.Outcome != event.CallCached
	c.DurationMS = int64((e.Duration + time.Millisecond - 1) / time.Millisecond)
	if p.whole {
		if err := p.charge(len(e.Text)); err != nil {
			return err
		}
		c.Result = &e.Text
	}
	meta := resultMeta{utf8.RuneCountInString(e.Text), "text"}
	return emit("tool_result", resultFrame{p.step, e.Name, e.Key, c.Preview, meta, c.IsError, c.DurationMS})
}

// preview returns the first characters of a text.
func preview(text string) string {
	n := 0
	for i := range text {
		if n++; n > maxPreview {
			return text[:i]
		}
	}
	return text
}

func (p *projection) wait(e event.Waiting, emit emitter) error {
	p.waits, p.used = nil, wireUsage(e.Usage, e.Cost)
	if p.asked == nil {
		p.asked = map[string]json.RawMessage{}
	}
	for _, a := range e.Approvals {
		if err := p.charge(len(a.Arguments)); err != nil {
			return err
		}
		p.asked[a.Key] = a.Arguments
		p.waits = append(p.waits, a.ID)
		message := cmp.Or(p.why[a.Key], fmt.Sprintf("The tool %s waits for approval.", a.Name))
		if err := emit(
			"approval_requested",
			approvalFrame{a.ID, a.Name, a.Arguments, a.Key, message, millis.Time(a.ExpiresAt)},
		); err != nil {
			return err
		}
	}
	return nil
}

func (p *projection) finished(e event.Finished, emit emitter) error {
	p.end, p.waits, p.used = &e, nil, wireUsage(e.Usage, e.Cost)
	if err := p.closeStep(emit); err != nil {
		return err
	}
	status, why := p.status()
	if status == runFailed {
		if err := emit("error", errorFrame{why.Error, why.Code, p.started.RunID}); err != nil {
			return err
		}
	} else if p.text.Len() > 0 && !p.toolless {
		if err := emit("chunk", chunkFrame{p.text.String()}); err != nil {
			return err
		}
	}
	return emit("complete", p.result())
}

// status returns what became of the run so far, and why it has failed or was cancelled; the zero value otherwise.
func (p *projection) status() (status string, why errorObject) {
	switch {
	case p.end == nil && len(p.waits) > 0:
		return runWaiting, why
	case p.end == nil:
		return runRunning, why
	}
	reason := p.end.Reason
	why.Code = string(reason)
	switch reason {
	case event.NoProgress:
		why.Error = doomLoop + cmp.Or(p.end.Repeated, "repeated tool calls")
		return runFailed, why
	case event.Cancelled:
		why.Error = "The run was cancelled."
		return runCancelled, why
	case event.CallerGone:
		why.Error = "The client closed the connection before the run was complete."
		return runCancelled, why
	case event.Deadline:
		why.Error = "The run reached its time limit."
		return runCancelled, why
	case event.Tokens, event.Money:
		why.Error = "The run reached a limit of its budget (" + string(reason) + ")."
		return runFailed, why
	default:
		if !reason.Failed() {
			return runCompleted, errorObject{}
		}
	}
	var object errorObject
	if err := json.Unmarshal(Errors().End(*p.end, p.reveals), &object); err == nil {
		why.Error, why.Code = object.Error, cmp.Or(object.Code, why.Code)
	}
	why.Error = cmp.Or(why.Error, string(reason))
	return runFailed, why
}

// result returns the run as complete, and the answers about it, have it.
func (p *projection) result() runResult {
	status, why := p.status()
	out := runResult{
		RunID:     p.started.RunID,
		SessionID: p.turn.Session,
		Content:   p.text.String(),
		Status:    status,
		Error:     why.Error,
		Code:      why.Code,
		Steps:     p.step,
		Usage:     p.used,
		Calls:     append([]call{}, p.calls...),
	}
	slices.SortStableFunc(out.Calls, func(a, b call) int { return loop.CompareKeys(loop.CallKey(a.ID), loop.CallKey(b.ID)) })
	return out
}

// write answers with the run as one JSON object, with the members of others, and the status of its end.
func (p *projection) write(w http.ResponseWriter, others ...any) error {
	status, why := p.status()
	code := http.StatusOK
	switch {
	case p.end == nil: // it waits for a person
		code = http.StatusAccepted
	case status != runCompleted:
		code = p.failed(w.Header())
		fault.Note(w, why.Code)
	}
	return surface.WriteJSON(w, code, append(ordered{p.result()}, others...))
}

// failed returns the HTTP status of a run that has failed or was cancelled, and sets the fields of the header that belong to it.
func (p *projection) failed(h http.Header) int {
	var status int
	switch p.end.Reason {
	case event.Deadline:
		status = http.StatusGatewayTimeout
	case event.Tokens, event.Money:
		status = http.StatusTooManyRequests
	case event.NoProgress:
		status = http.StatusUnprocessableEntity
	default:
		return Errors().EndStatus(h, *p.end, p.reveals)
	}
	h.Set("X-Should-Retry", "false") // the same request takes as long, or costs as much, again
	return status
}

// frame sends a frame. Deltas have no seq and no ts.
func (p *projection) frame(at event.Position, kind string, members any) error {
	delta := kind == "content_delta" || kind == "reasoning_delta" || kind == "chunk" && p.toolless
	if !delta {
		p.seq++
	}
	id := frameID{at, p.part}
	p.part++
	if p.send == nil {
		return nil
	}
	head := frameHead{Event: kind, Type: kind}
	if !delta {
		head.Seq, head.TS = p.seq, surface.Timestamp(p.when.UnixMilli())
	}
	return p.send(id.String(), ordered{head, members})
}

// frameID is the id of a frame: the position of its event, and which of the frames of the event it is.
type frameID struct {
	at   event.Position
	part int
}

// String returns the id as "12.0" or "12.0-1".
func (f frameID) String() string {
	if f.part == 0 {
		return f.at.String()
	}
	return fmt.Sprintf("%s-%d", f.at, f.part)
}

// parseFrameID is the inverse of String.
func parseFrameID(text string) (f frameID, err error) {
	position, part, _ := strings.Cut(text, "-")
	if f.at, err = event.ParsePosition(position); err != nil {
		return f, err
	}
	for f.part = 0; part != "" && f.part < 1000; f.part++ {
		if fmt.Sprint(f.part) == part {
			break
		}
	}
	if f.String() != text {
		err = fmt.Errorf("%.60q is not the id of an event", text)
	}
	return f, err
}

// after reports whether f follows other.
func (f frameID) after(other frameID) bool {
	if c := f.at.Compare(other.at); c != 0 {
		return c > 0
	}
	return f.part > other.part
}
