//go:build unix

package crash_test

import (
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
)

// counts is what happened in one case, or in several.
type counts struct{ cases, kills, resumed, broken, effects, unknown, sends, keys int }

func (c counts) plus(o counts) counts {
	return counts{
		c.cases + o.cases, c.kills + o.kills, c.resumed + o.resumed, c.broken + o.broken,
		c.effects + o.effects, c.unknown + o.unknown, c.sends + o.sends, c.keys + o.keys,
	}
}

// fate is what a journal tells of one call.
type fate struct {
	name      string
	class     tool.Class
	keys      []string // idempotency key of each attempt
	inFlight  bool     // its owner was gone before it was done
	outcome   loop.Outcome
	text      string // what the model was told
	attempted int
}

// fates reads the journal, every fact of which must be one that the rules allow
// in its place.
func (w *world) fates(story *journal.Story) []*fate {
	w.Helper()
	var all []*fate
	of := map[loop.CallKey]*fate{}
	var state loop.State
	for _, f := range story.Facts {
		if err := loop.Allowed(state, f); err != nil {
			w.Errorf("fact %d, %s: %v", f.Seq, f.Body.Kind(), err)
		}
		state = loop.Apply(state, f)
		switch b := f.Body.(type) {
		case loop.CallPrepared:
			of[b.Key] = &fate{name: b.Tool, class: b.Class}
			all = append(all, of[b.Key])
		case loop.CallStarted:
			of[b.Key].keys = append(of[b.Key].keys, b.IdemKey)
			of[b.Key].attempted = b.Attempt
		case loop.CallDone:
			if c := of[b.Key]; c != nil { // or else it was answered before it was prepared
				c.outcome, c.text = b.Outcome, textOf(story, b.ResultRef)
			}
		case loop.Resumed:
			for _, c := range all {
				c.inFlight = c.inFlight || len(c.keys) > 0 && c.outcome == ""
			}
		}
	}
	return all
}

// judge says whether the one run in the store kept what is promised, and counts
// what it did. ended is how the run should have ended.
func (w *world) judge(ended string) (counts, []*fate) {
	w.Helper()
	runs := w.runs()
	if len(runs) != 1 {
		w.Fatalf("the store has %d runs, want one: %v", len(runs), runs)
	}
	var c counts
	var all []*fate
	for id, state := range runs {
		if state != ended {
			w.Errorf("the run is %s, want %s", state, ended)
		}
		story, _ := w.load(id)
		all = w.fates(story)
		for _, f := range story.Facts {
			if f.Body.Kind() == loop.KindResumed {
				c.resumed++
			}
		}
	}
	seen := map[string]bool{} // keys that belong to a call of the journal
	for _, f := range all {
		w.judgeCall(f, ended, &c)
		for _, key := range f.keys {
			seen[key] = true
		}
	}
	for _, sent := range w.tools.Calls() {
		if sent.Tool != "look" && !seen[sent.Key] {
			w.Errorf("%s was called with the key %q, which no fact tells of", sent.Tool, sent.Key)
		}
	}
	w.judgeHeaders()
	return c, all
}

// judgeCall compares what the journal says of a call with what its tool saw.
func (w *world) judgeCall(f *fate, ended string, c *counts) {
	w.Helper()
	if len(f.keys) == 0 {
		return // it was not executed
	}
	sends := w.sends(f)
	switch {
	case f.class != tool.Read && len(slices.Compact(slices.Clone(f.keys))) != 1:
		w.Errorf("%s has the idempotency keys %q, want one", f.name, f.keys)
	case f.outcome == "":
		w.Errorf("%s has no result", f.name)
	case f.class == tool.Once && (len(f.keys) > 1 || sends > 1):
		w.Errorf("%s was started %d times and took effect %d times, want at most once", f.name, len(f.keys), sends)
	case f.class == tool.Once && f.inFlight && (f.outcome != loop.Unknown || ended == "complete" && word(f.text) != "unknown"):
		w.Errorf("%s was in flight, and the model was told %s, %q", f.name, f.outcome, f.text)
	case f.outcome == loop.Unknown && ended == "complete" && (f.class != tool.Once || !f.inFlight):
		w.Errorf("the outcome of %s is unknown, and it is %s and could be known", f.name, f.class)
	case f.outcome == loop.OK && sends == 0:
		w.Errorf("%s is said to have succeeded and was never called", f.name)
	case f.class == tool.Keyed && sends > 2:
		w.Errorf("%s was sent %d times, want at most 2", f.name, sends)
	}
	if f.class == tool.Once {
		c.effects += sends
	}
	if f.class == tool.Keyed {
		c.sends += sends
		c.keys += min(sends, 1)
	}
	if f.outcome == loop.Unknown {
		c.unknown++
	}
}

// sends counts how often the tool got the call. Reading calls have no key.
func (w *world) sends(f *fate) int {
	n := 0
	for _, sent := range w.tools.Calls() {
		if sent.Tool == f.name && (f.class == tool.Read || sent.Key == f.keys[0]) {
			n++
		}
	}
	return n
}

// judgeHeaders compares the keys in _meta with those of the HTTP requests.
func (w *world) judgeHeaders() {
	w.Helper()
	var headers []string
	for _, h := range w.tools.Headers("tools/call") {
		headers = append(headers, h.Get("Idempotency-Key"))
	}
	for _, sent := range w.tools.Calls() {
		if !slices.Contains(headers, sent.Key) {
			w.Errorf("%s got the key %q, which no header Idempotency-Key has", sent.Tool, sent.Key)
		}
	}
}

// expected is the answer to the errand of a run whose calls had these fates.
func expected(all []*fate) string {
	var told []string
	for _, f := range all {
		result := map[string]string{"look": "seen", "order": "ordered", "send": "sent"}[f.name]
		if f.outcome == loop.Unknown {
			result = "unknown"
		}
		told = append(told, f.name+" "+result)
	}
	return "Done: " + strings.Join(told, ", ") + "."
}

// wantErrand fails the test unless the answer is the one that an undisturbed run
// gives, but for calls that nobody knows the outcome of, and stays so when the
// request is sent yet again.
func (w *world) wantErrand(q question, in insistence, ended string, all []*fate) {
	w.Helper()
	want := answer{status: http.StatusOK, runID: in.runID, text: expected(all), reason: "stop", tokens: 45}
	switch {
	case ended == "cancelled" && q.stream: // what was said comes first
		want = answer{status: http.StatusOK, code: ended, runID: in.runID, text: "Let me look."}
	case ended == "cancelled":
		want = answer{status: http.StatusConflict, code: ended, runID: in.runID}
	case q.stream:
		want.text = "Let me look.\n\nOne more.\n\n" + want.text
	}
	sent := len(w.tools.Calls())
	for _, got := range []answer{in.answer, w.ask(w.Context(), q, nil)} {
		if got != want {
			w.Errorf("answered %+v, want %+v", got, want)
		}
	}
	q.stream = !q.stream
	if other := w.ask(w.Context(), q, nil); other.status != http.StatusUnprocessableEntity {
		w.Errorf("the key with another body got %+v", other)
	}
	if n := len(w.tools.Calls()); n != sent {
		w.Errorf("requests that were over made %d calls", n-sent)
	}
}
