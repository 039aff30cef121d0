package sim

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// told is what the journal of a run says that its callers were told.
type told struct {
	texts   map[part]string
	results map[string]string // by call
	end     loop.Finished
}

// checkConns compares what a client heard, on every connection, with what the
// journal says in the end.
func (b *book) checkConns(c *client) {
	var runID string
	for _, conn := range c.conns {
		if len(conn.events) == 0 {
			continue
		}
		started, ok := conn.events[0].(event.Started)
		if !ok {
			b.w.violate("I8: %s hears %T first", c.id, conn.events[0])
			return
		}
		if c.key != nil && runID != "" && started.RunID != runID {
			b.w.violate("I9: %s hears of run %s and of run %s", c.id, runID, started.RunID)
		}
		runID = started.RunID
		story, err := b.w.store.journal.Load(context.Background(), c.org, runID)
		if errors.Is(err, org.ErrNotFound) && c.like.Policy.NoStore && b.of(runKey{c.org, runID}).state.Finished != nil {
			continue // its time is over
		}
		if err != nil {
			b.w.violate("I8: %s hears of run %s: %v", c.id, runID, err)
			return
		}
		t := tell(story)
		if c.key == nil && t.end.Reason == event.Lost && !conn.finished() {
			continue // what a light run has said is not all on disk when its process dies
		}
		if c.like.Policy.NoStore && story.Summary.Grade == loop.Light {
			if len(story.Rows) > 0 {
				b.w.violate("I14: %d rows of run %s are stored, which has not waited", len(story.Rows), runID)
			}
			b.w.saw("a run that never waited left no texts")
			continue
		}
		if c.like.Policy.StoresNoTexts() {
			b.w.saw("a run that waited had its texts")
		}
		b.checkConn(c, conn, t)
	}
}

// part is one model call of a round: an answer that was cut off has several.
type part struct{ round, part int }

func tell(story *journal.Story) told {
	t := told{texts: map[part]string{}, results: map[string]string{}}
	text := func(ref string) string {
		var items item.List
		if json.Unmarshal(story.Rows[ref], &items) != nil || len(items) == 0 {
			return ""
		}
		return items[0].Text()
	}
	for _, f := range story.Facts {
		switch body := f.Body.(type) {
		case loop.Turn:
			at := part{body.Round, 0}
			for t.texts[at] != "" { // an answer that was cut off
				at.part++
			}
			t.texts[at] = text(body.ItemsRef)
		case loop.CallDone:
			t.results[string(body.Key)] = string(body.Outcome) + ": " + text(body.ResultRef)
		case loop.Finished:
			t.end = body
		}
	}
	return t
}

func (b *book) checkConn(c *client, conn *conn, t told) {
	var text strings.Builder
	var at part
	waited := false // from then on another process may go on with the run, and ask again
	for i, e := range conn.events {
		switch e := e.(type) {
		case event.Waiting:
			waited = true
		case event.Started:
			if i > 0 {
				b.w.violate("I8: %s hears of a second beginning", c.id)
			}
		case event.RoundStarted:
			if c.like.Policy.Live != nil && c.key == nil && !waited && text.Len() > 0 {
				b.w.violate("I8: %s has heard %q when round %d begins again", c.id, text.String(), e.Round)
			}
			text.Reset()
			at = part{e.Round, e.Continues}
		case event.TextDelta:
			text.WriteString(e.Text)
		case event.RoundDone:
			if want := t.texts[at]; text.String() != want {
				b.w.violate("I8: %s hears %q in part %d of round %d, and the journal says %q", c.id, text.String(), at.part, e.Round, want)
			}
			text.Reset()
		case event.ToolDone:
			if got := string(e.Outcome) + ": " + e.Text; got != t.results[e.Key] {
				b.w.violate("I8: %s hears that call %s ended with %q, and the journal says %q", c.id, e.Key, got, t.results[e.Key])
			}
		case event.Finished:
			if i < len(conn.events)-1 || e.Reason != t.end.Reason {
				b.w.violate("I8: %s hears the end %s as event %d of %d, and the journal says %s", c.id, e.Reason, i+1, len(conn.events), t.end.Reason)
			}
		}
	}
}
