package eventlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Writer is the event log of a run in the hands of the run's owner: it folds each fact that
// the store has taken, emits its event, and keeps the items and arguments of the run for
// later model calls and tool calls. Only the goroutine that performs the run may use it; the
// exception is [Writer.Delta], which is called by one goroutine at a time.
type Writer struct {
	fold    fold
	kept    kept
	account *memlimit.Account // charged with the items that the run keeps
	rowless bool              // the run has stored no rows: it is to be forgotten, and has not waited
}

// NewWriter returns the event log of a run that has no facts yet. stop is called with an error
// that wraps [ErrSinkFailed] when the sink returns one. account is charged with the items that the
// run keeps; nil = nothing is counted.
func NewWriter(sink Sink, account *memlimit.Account, stop func(error)) *Writer {
	w := &Writer{account: account}
	w.fold.sink, w.fold.stop, w.fold.content = sink, stop, &w.kept
	w.kept.failed = func() *model.Error { return w.fold.failed }
	return w
}

// kept is the content of a run that its owner keeps in memory.
type kept struct {
	items  map[string][]item.Item           // by ref: what the journal's rows hold
	args   map[loop.CallKey]json.RawMessage // of the calls that are to be executed
	patch  map[string]json.RawMessage       // by ref: what hooks have put in place of arguments
	values map[string]builtin.Encoded       // by ref: of results, until they are told
	listed []event.ListedServer             // what the run lists for its caller, until it is told
	failed func() *model.Error              // what CallFailed has set
}

func (k *kept) itemsOf(ref string) ([]item.Item, error) { return k.items[ref], nil }

func (k *kept) argumentsOf(c loop.Call) (json.RawMessage, error) { return k.args[c.Key], nil }

func (k *kept) listedOf(string) ([]event.ListedServer, error) {
	list := k.listed
	k.listed = nil
	return list, nil
}

func (k *kept) valueOf(ref string) (builtin.Encoded, error) {
	value := k.values[ref]
	delete(k.values, ref)
	return value, nil
}

func (k *kept) failureOf(string) (*model.Error, error) { return k.failed(), nil }

func (k *kept) live() bool { return true }

// State returns the state after the last fact. The caller must not change it; it changes with
// the next fact.
func (w *Writer) State() *loop.State { return &w.fold.state }

// Last returns the number of the fact to which the last event belongs.
func (w *Writer) Last() int64 { return w.fold.last }

// Add folds a fact after which the state is next, and emits its event.
func (w *Writer) Add(f loop.Fact, next loop.State) {
	w.fold.state = next
	_ = w.fold.tell(f) // reads nothing
}

// Reorder sets the state after the same facts with facts of other writers in between, which have no events.
func (w *Writer) Reorder(state loop.State) { w.fold.state = state }

// Delta emits the event of a delta of the model call that is under way.
func (w *Writer) Delta(round int, d model.Delta) { w.fold.delta(round, d) }

// CallDeltas reports whether pieces of tool calls are events of the run. A durable run has them
// only if its surface sends them, because it stores its events.
func (w *Writer) CallDeltas() bool { return w.fold.callDeltas() }

// Relay emits the head or a piece of the body of a raw relay, which have no position.
func (w *Writer) Relay(e event.Event) { w.fold.emit(event.Position{}, e) }

// CallFailed sets how the latest model call has failed, and returns the row of the failure. It
// must be called before the TurnFailed that refers to the row is added.
func (w *Writer) CallFailed(ref string, e *model.Error) journal.Row {
	stored := newStoredFailure(e)
	w.fold.failed = stored.error() // the same as after a restart, but for the cause
	w.fold.failed.Err = e.Err
	return journal.Row{Ref: ref, Value: stored}
}

// Failed returns the last failed model call of the run; nil = none has failed.
func (w *Writer) Failed() *model.Error { return w.fold.failed }

// Reported returns the failed model call that the caller gets if the run ends with a model error; nil = none has failed.
func (w *Writer) Reported() *model.Error { return w.fold.reported() }

// Store keeps items for the rest of the run, and returns the row for the journal.
func (w *Writer) Store(ref string, items []item.Item) []journal.Row {
	if w.kept.items == nil {
		w.kept.items = map[string][]item.Item{}
	}
	w.account.Release(HeldBytes(w.kept.items[ref])) // what was not accepted is stored again
	w.kept.items[ref] = items
	w.account.Add(HeldBytes(items))
	return []journal.Row{{Ref: ref, Value: item.List(items)}}
}

// Stored reports whether a row with the ref is taken. A row is stored once.
func (w *Writer) Stored(ref string) bool {
	_, taken := w.kept.items[ref]
	return taken
}

// Transcript returns the items of the refs.
func (w *Writer) Transcript(refs []string) []item.Item {
	n := 0
	for _, ref := range refs {
		n += len(w.kept.items[ref])
	}
	out := slices.Grow([]item.Item(nil), n)
	for _, ref := range refs {
		out = append(out, w.kept.items[ref]...)
	}
	return out
}

// Items returns the items of a ref. The caller must not change them.
func (w *Writer) Items(ref string) []item.Item { return w.kept.items[ref] }

// listedRef refers to the row with the tools that the run lists for its caller.
const listedRef = "listed"

// List sets what the run lists for its caller, and returns the row of it. It must be called
// before the Catalogued that refers to the row is added.
func (w *Writer) List(list []event.ListedServer) journal.Row {
	w.kept.listed = list
	return journal.Row{Ref: listedRef, Value: list}
}

// KeepValue keeps the typed value of a result until its event is emitted, and returns the row of it. It must be called before the
// CallDone that refers to the row is added.
func (w *Writer) KeepValue(ref string, value builtin.Encoded) journal.Row {
	if w.kept.values == nil {
		w.kept.values = map[string]builtin.Encoded{}
	}
	w.kept.values[ref] = value
	return journal.Row{Ref: ref, Value: value}
}

// KeepArguments keeps the arguments of a call that is to be executed, as they are sent.
func (w *Writer) KeepArguments(key loop.CallKey, arguments json.RawMessage) {
	if w.kept.args == nil {
		w.kept.args = map[loop.CallKey]json.RawMessage{}
	}
	w.kept.args[key] = arguments
}

// Arguments returns what KeepArguments has kept, or false.
func (w *Writer) Arguments(key loop.CallKey) (json.RawMessage, bool) {
	arguments, ok := w.kept.args[key]
	return arguments, ok
}

// KeepPatch keeps arguments that a hook has put in place of a model's, and returns them.
func (w *Writer) KeepPatch(ref string, arguments json.RawMessage) json.RawMessage {
	if w.kept.patch == nil {
		w.kept.patch = map[string]json.RawMessage{}
	}
	w.kept.patch[ref] = arguments
	w.account.Add(len(arguments))
	return arguments
}

// Patch returns what KeepPatch has kept.
func (w *Writer) Patch(ref string) json.RawMessage { return w.kept.patch[ref] }

// RawArguments returns the arguments of a call as the model wrote them.
func (w *Writer) RawArguments(c loop.Call) string { return w.fold.rawArguments(c) }

// Recover folds a journal for its next owner, without events: they were emitted when the facts
// were stored. restore is called with each fact of a run whose rows are stored, before its rows are read.
//
// The error wraps [loop.ErrUnsafe] for a journal that is not safe, and is an
// *[journal.Unreadable] for one that refers to what cannot be decoded.
func (w *Writer) Recover(story *journal.Story, restore func(loop.Body) error) (err error) {
	p := &w.fold
	if p.texts, err = recallTexts(story.Rows[textsRef]); err != nil {
		return err
	}
	for _, f := range story.Facts {
		f.Body = loop.WithTexts(f.Body, p.texts[f.Seq])
		if err := loop.CheckSafety(p.state, f); err != nil {
			return err
		}
		if a, ok := f.Body.(loop.Accepted); ok {
			w.rowless = a.StoresNoTexts() && !Parks(story.Facts)
		}
		p.state = loop.Apply(p.state, f)
		p.last = f.Seq
		if err := w.load(f, story.Rows, restore); err != nil {
			var bad *journal.Unreadable
			if errors.As(err, &bad) {
				return err
			}
			return &journal.Unreadable{Seq: f.Seq, Kind: f.Body.Kind(), Version: f.Version, Err: err}
		}
	}
	return nil
}

// load reads the rows that the owner of a run needs of those that a fact refers to.
func (w *Writer) load(f loop.Fact, rows map[string]json.RawMessage, restore func(loop.Body) error) error {
	if w.rowless { // it ends
		return nil
	}
	if err := restore(f.Body); err != nil {
		return err
	}
	switch b := f.Body.(type) {
	case loop.InputAdded:
		return w.recallItems(b.ItemsRef, rows)
	case loop.Compacted:
		for _, ref := range b.Refs {
			if w.Items(ref) != nil { // a row of the transcript
				continue
			}
			if err := w.recallItems(ref, rows); err != nil {
				return err
			}
		}
	case loop.TurnFailed:
		failed, err := recallFailure(b.ErrorRef, rows[b.ErrorRef])
		if err != nil {
			return err
		}
		w.fold.failed = failed
		w.fold.noteFirst(b)
		return w.recallItems(b.PartialRef, rows)
	case loop.Turn:
		if err := w.recallItems(b.ItemsRef, rows); err != nil {
			return err
		}
		if err := w.recallItems(b.WholeRef, rows); err != nil {
			return err
		}
		// Items of version 1 have no number among the run's turns.
		for _, ref := range []string{b.ItemsRef, b.WholeRef} {
			item.SetTurn(w.Items(ref), item.LastTurn(w.Items("input"))+b.Round+1)
		}
	case loop.CallPrepared:
		if b.ArgsRef != "" {
			if !json.Valid(rows[b.ArgsRef]) {
				return journal.Damaged(b.ArgsRef, errors.New("no JSON"))
			}
			w.KeepArguments(b.Key, rows[b.ArgsRef])
		}
	case loop.HookRan:
		return w.recallPatch(b, rows)
	case loop.CallDone:
		if err := w.recallItems(b.ResultRef, rows); err != nil {
			return err
		}
		if len(w.Items(b.ResultRef)) == 0 {
			return fmt.Errorf("row %s holds no result", b.ResultRef)
		}
	case loop.Finished:
		return w.fold.checkEnd(b)
	case loop.Accepted, loop.Blocked, loop.CallResolved, loop.CallStarted, loop.CallWaiting,
		loop.CancelRequested, loop.Catalogued, loop.Expired, loop.LimitsRaised, loop.Parked, loop.Paused,
		loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed, loop.TurnStarted: // they refer to no rows that the owner needs
	}
	return nil
}

// recallPatch reads what a hook has put in place: arguments before a call, or the answer of the run.
// What it has put in place of a result is in the row of the result.
func (w *Writer) recallPatch(b loop.HookRan, rows map[string]json.RawMessage) error {
	switch {
	case b.PatchRef == "" || b.Point == loop.PostToolUse:
		return nil
	case b.Point == loop.PreResponse:
		return w.recallItems(b.PatchRef, rows)
	case !json.Valid(rows[b.PatchRef]):
		return journal.Damaged(b.PatchRef, errors.New("no JSON"))
	}
	w.KeepPatch(b.PatchRef, rows[b.PatchRef])
	return nil
}

func (w *Writer) recallItems(ref string, rows map[string]json.RawMessage) error {
	if ref == "" {
		return nil
	}
	var items item.List
	if err := json.Unmarshal(rows[ref], &items); err != nil {
		return journal.Damaged(ref, err)
	}
	w.Store(ref, items)
	return nil
}

// Abandon sets the state to that of a run which is given up because of its journal: see
// [loop.Abandon]. last is the number of the journal's last fact.
func (w *Writer) Abandon(story *journal.Story, last int64) {
	w.fold.state = loop.Abandon(story.Facts, last)
	for ref := range story.Rows { // a row is stored once
		if w.kept.items[ref] == nil {
			w.Store(ref, nil)
		}
	}
}
