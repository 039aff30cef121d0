// Package replaytest replays recorded runs against an agent: what the model said is in a file, and the agent
// must make the same tool calls, with the same results, and come to the same end. It is a package of
// its own because it links the library, whose own tests use turnpiketest.
//
//	func TestMain(m *testing.M) {
//		turnpiketest.UpdateFlag()
//		os.Exit(m.Run())
//	}
//
//	func TestRefund(t *testing.T) {
//		replaytest.Record(t, "testdata/refund.json", newAgent(realModel), turnpike.Text("Refund order A7."))
//		replaytest.Replay(t, "testdata/refund.json", newAgent(nil))
//	}
//
// go test -update makes the recording, with the real model. Without it, Record does nothing.
package replaytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// version is that of the file.
const version = 1

// recording is a file.
type recording struct {
	Version int        `json:"v"`
	Model   modelName  `json:"model"`
	Input   item.List  `json:"input"`
	Turns   []turn     `json:"turns"` // of the model
	Calls   []toolCall `json:"calls"`
	End     end        `json:"end"`
}

// modelName is the name of a model and of its provider.
type modelName struct {
	Provider string `json:"provider"`
	Name     string `json:"name"`
}

// turn is what a model call returned.
type turn struct {
	Items item.List    `json:"items"`
	Calls []model.Call `json:"calls,omitempty"`
	Stop  model.Stop   `json:"stop,omitempty"`
	Usage model.Usage  `json:"usage"`
	Error *model.Error `json:"error,omitempty"` // of a call that has failed
}

// toolCall is a tool call with its result.
type toolCall struct {
	Round     int           `json:"round"`
	Tool      string        `json:"tool"`
	Arguments string        `json:"arguments"`
	Result    string        `json:"result"`
	Failed    bool          `json:"failed,omitempty"`
	Outcome   event.Outcome `json:"outcome,omitempty"` // "" = not known
}

func (c toolCall) String() string {
	return fmt.Sprintf("round %d: %s %s", c.Round, c.Tool, c.Arguments)
}

// end is how a run ended.
type end struct {
	Text   string `json:"text"`
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"` // its type, such as *turnpike.LimitError
}

// Record runs the agent with its own model and writes what happened to the file, if the test binary runs with
// -update (see turnpiketest.UpdateFlag); otherwise it does nothing. Calls that wait for approval are
// approved. The agent must not have run before, and cannot be used afterwards.
func Record(t testing.TB, file string, agent *turnpike.Agent, input turnpike.Input, opts ...turnpike.Option) {
	t.Helper()
	if !turnpiketest.Updating() {
		return
	}
	tape := &tape{model: agent.Model}
	tape.rec.Version, tape.rec.Model = version, nameOf(agent.Model)
	agent.Model = tape
	if agent.Instructions != "" {
		tape.skip = 1
	}
	r, err := finish(t.Context(), agent, input, nil, opts)
	tape.rec.Calls, tape.rec.End = callsOf(r), endOf(r, err)
	write(t, file, tape.rec)
}

// Write writes a run of which only the input and the result are known to the file, such as one of a store: the Result
// of Agent.Resume for a run that has ended has its items and its trace. Its token counts are not known. It writes
// only with -update, as [Record] does.
func Write(t testing.TB, file string, input []item.Item, r *turnpike.Result) {
	t.Helper()
	if !turnpiketest.Updating() {
		return
	}
	rec := recording{Version: version, Model: nameOf(nil), Input: input, Calls: callsOf(r), End: endOf(r, nil)}
	for items := range item.Turns(r.Items) {
		if items[0].Turn != 0 {
			rec.Turns = append(rec.Turns, turnOf(items))
		}
	}
	if n := len(rec.Turns); n > 0 && r.Reason == "length" {
		rec.Turns[n-1].Stop = model.StopLength
	}
	write(t, file, rec)
}

// turnOf returns a turn of which only the items are known.
func turnOf(items []item.Item) turn {
	out := turn{Items: items, Stop: model.StopEnd}
	for _, it := range items {
		if it.Kind == item.ToolCall {
			call := model.Call{ID: it.CallID, Name: it.Name, Arguments: it.Arguments, Complete: true}
			out.Calls = append(out.Calls, call)
			out.Stop = model.StopCalls
		}
	}
	return out
}

func write(t testing.TB, file string, rec recording) {
	t.Helper()
	text, err := json.MarshalIndent(rec, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	turnpiketest.Golden(t, file, append(text, '\n')) // writes it
}

// Replay runs the agent with the answers of the recorded model, and reports each difference: another tool call,
// another result of one, a model call more or less, another end. The tools are those of the agent and are
// executed, so that they must give the same results each time. Calls that wait for approval are approved, or
// denied if they were. The agent's own Model is not used, and may be nil. The agent must not have run
// before, and cannot be used afterwards.
func Replay(t testing.TB, file string, agent *turnpike.Agent, opts ...turnpike.Option) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("recording: %v (run the test with -update to make it)", err)
	}
	var rec recording
	if err := json.Unmarshal(text, &rec); err != nil {
		t.Fatalf("recording %s: %v", file, err)
	}
	if rec.Version != version {
		t.Fatalf("recording %s has the version %d, and this package reads %d; make it again with -update",
			file, rec.Version, version)
	}
	p := &player{rec: rec}
	agent.Model = p
	r, runErr := finish(t.Context(), agent, turnpike.Items(rec.Input...), &rec, opts)
	var out []string
	if made, want := p.next+p.more, len(rec.Turns); made != want {
		out = append(out, fmt.Sprintf("the model is called %d times, and %d times in the recording", made, want))
	}
	out = append(out, compareCalls(rec.Calls, callsOf(r))...)
	out = append(out, compareEnds(rec.End, endOf(r, runErr), runErr)...)
	if len(out) > 0 {
		t.Errorf("%s: the run differs from the recording:\n%s", file, strings.Join(out, "\n"))
	}
}

func compareCalls(want, got []toolCall) (out []string) {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			out = append(out, fmt.Sprintf("%v: this call is in the recording, and the run does not make it", want[i]))
			continue
		case i >= len(want):
			out = append(out, fmt.Sprintf("%v: the run makes this call, and it is not in the recording", got[i]))
			continue
		}
		w, g := want[i], got[i]
		switch {
		case w.Round != g.Round || w.Tool != g.Tool || w.Arguments != g.Arguments:
			return append(out, fmt.Sprintf("call %d is\n  %v\nand in the recording\n  %v", i+1, g, w))
		case w.Outcome != "" && g.Outcome != "" && w.Outcome != g.Outcome:
			out = append(out, fmt.Sprintf("%v: the outcome is %s, and %s in the recording; the result is %q",
				g, g.Outcome, w.Outcome, g.Result))
		case w.Failed != g.Failed || w.Result != g.Result:
			out = append(out, fmt.Sprintf("%v: the result is\n  %s\nand in the recording\n  %s", g, shown(g), shown(w)))
		}
	}
	return out
}

// shown returns the result of a call, for people.
func shown(c toolCall) string {
	if c.Failed {
		return fmt.Sprintf("error %q", c.Result)
	}
	return fmt.Sprintf("%q", c.Result)
}

func compareEnds(want, got end, err error) (out []string) {
	if want.Error != got.Error {
		return []string{fmt.Sprintf("the run ends with %s, and with %s in the recording: %v",
			orAnswer(got.Error), orAnswer(want.Error), err)}
	}
	if want.Reason != got.Reason {
		out = append(out, fmt.Sprintf("the run ends for the reason %q, and %q in the recording",
			got.Reason, want.Reason))
	}
	if want.Text != got.Text {
		out = append(out, fmt.Sprintf("the answer is %q, and %q in the recording", got.Text, want.Text))
	}
	return out
}

func orAnswer(errType string) string {
	if errType == "" {
		return "an answer"
	}
	return "a " + errType
}

// finish runs the agent until nothing waits for approval. rec says which calls are denied; nil = none.
func finish(
	ctx context.Context, agent *turnpike.Agent, input turnpike.Input, rec *recording, opts []turnpike.Option,
) (*turnpike.Result, error) {
	r, err := agent.Run(ctx, input, append(opts[:len(opts):len(opts)], turnpike.ShowTrace())...)
	for {
		var waiting *turnpike.Waiting
		if !errors.As(err, &waiting) || len(waiting.Approvals) == 0 {
			break
		}
		var decisions []turnpike.Decision
		for _, a := range waiting.Approvals {
			if rec.denies(a) {
				decisions = append(decisions, turnpike.Deny(a.ID, ""))
			} else {
				decisions = append(decisions, turnpike.Approve(a.ID))
			}
		}
		r, err = agent.Resume(ctx, waiting.RunID, decisions...).Result()
	}
	var failure turnpike.Failure
	if r == nil && errors.As(err, &failure) {
		r = failure.Result()
	}
	return r, err
}

// denies reports whether the call of the approval was denied.
func (rec *recording) denies(a turnpike.Approval) bool {
	if rec == nil {
		return false
	}
	for _, c := range rec.Calls {
		if c.Tool == a.Tool && sameJSON(c.Arguments, string(a.Arguments)) && c.Outcome == event.CallDenied {
			return true
		}
	}
	return false
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	return reflect.DeepEqual(x, y)
}

func callsOf(r *turnpike.Result) (out []toolCall) {
	if r == nil {
		return nil
	}
	for _, s := range r.Steps {
		for _, c := range s.Calls {
			out = append(out, toolCall{
				Round: s.Round, Tool: c.Tool, Arguments: c.Arguments, Result: c.Result, Failed: c.Error, Outcome: c.Outcome,
			})
		}
	}
	return out
}

func endOf(r *turnpike.Result, err error) (out end) {
	if r != nil {
		out.Text, out.Reason = r.Text, string(r.Reason)
	}
	if err != nil {
		out.Error = reflect.TypeOf(err).String()
	}
	return out
}

// tape is a model that records what another one says.
type tape struct {
	model model.Model
	skip  int // items in front of the input

	mu  sync.Mutex
	rec recording
}

// ModelName implements model.Named.
func (m *tape) ModelName() (provider, name string) {
	n := nameOf(m.model)
	return n.Provider, n.Name
}

// Stream implements model.Model.
func (m *tape) Stream(ctx context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	got, err := m.model.Stream(ctx, req, emit)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rec.Input == nil {
		m.rec.Input = slices.Clone(req.Items[m.skip:])
	}
	if n := len(m.rec.Turns); n > 0 && m.rec.Turns[n-1].Error != nil { // an attempt that is repeated
		m.rec.Turns = m.rec.Turns[:n-1]
	}
	var failed *model.Error
	switch {
	case err == nil:
		m.rec.Turns = append(m.rec.Turns, turn{Items: got.Items, Calls: got.Calls, Stop: got.Stop, Usage: got.Usage})
	case errors.As(err, &failed):
		m.rec.Turns = append(m.rec.Turns, turn{Error: failed})
	default:
		m.rec.Turns = append(m.rec.Turns, turn{Error: &model.Error{Class: model.Target, Message: err.Error()}})
	}
	return got, err
}

// player is a model that says what was recorded.
type player struct {
	rec recording

	mu   sync.Mutex
	next int
	more int // calls beyond the last turn
}

// ModelName implements model.Named.
func (p *player) ModelName() (provider, name string) { return p.rec.Model.Provider, p.rec.Model.Name }

// Stream implements model.Model.
func (p *player) Stream(_ context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == len(p.rec.Turns) {
		p.more++
		message := fmt.Sprintf("the recording has only %d model calls", p.next)
		return nil, &model.Error{Class: model.Invalid, Message: message}
	}
	one := p.rec.Turns[p.next]
	p.next++
	if one.Error != nil {
		if one.Error.Class == model.Transient { // as if it had been repeated already
			return nil, &model.Error{Class: model.Target, Status: one.Error.Status, Message: one.Error.Message}
		}
		return nil, one.Error
	}
	out := &model.Turn{Items: one.Items, Calls: one.Calls, Stop: one.Stop, Usage: one.Usage}
	item.SetTurn(out.Items, item.LastTurn(req.Items)+1)
	if text := out.Text(); text != "" {
		if err := emit(model.Delta{Text: text}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func nameOf(m model.Model) modelName {
	if n, ok := m.(model.Named); ok {
		provider, name := n.ModelName()
		return modelName{provider, name}
	}
	return modelName{"custom", "model"}
}
