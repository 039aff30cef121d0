package loop

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
)

// Segment is a row of items in the transcript of a run. Nothing is ever removed from a
// transcript: see [State.Seen] for what the model sees of it.
type Segment struct {
	Kind  SegmentKind
	Ref   string // of the row with the items
	Bytes int64  // size of the items in a prompt; 0 = not known

	// Of a Replacement: Refs are the rows that the model sees instead of the segments before
	// Until, an index into the transcript.
	Refs  []string
	Until int
}

// SegmentKind says whose items a segment has.
type SegmentKind string

// The kinds of segment.
const (
	Input       SegmentKind = "input"       // what the caller sent before the first model call
	Own         SegmentKind = "own"         // what the model answered in one turn, or the result of one of its calls
	Added       SegmentKind = "added"       // input that came later, or from somebody else than the caller
	Replacement SegmentKind = "replacement" // of a compaction: what the model sees instead of the segments before
)

// Adder says who added input to a run.
type Adder string

// The adders.
const (
	ByClient Adder = "client" // the caller: with its request, or with one that continues the run
	ByHook   Adder = "hook"   // a hook
	ByOther  Adder = "other"  // somebody who has access to the run, such as the sender of a message to its session
)

// allowCompacted allows it before a model call, and after one that failed because the context
// is too long.
func allowCompacted(s *State, b Compacted) error {
	_, calls := Decide(*s).(CallModel)
	end, ends := Decide(*s).(Finish)
	tooLong := ends && end.Reason == event.TooLong && s.Ended == "" && !s.relays()
	switch {
	case s.Attempt.Open || s.relays() || !calls && !tooLong:
		return expects(s, CallModel{}, false)
	case b.Failed && len(b.Refs) > 0:
		return fmt.Errorf("it has failed, and it has items for the model")
	case b.Failed:
		return nil
	case !s.replaces(b):
		return fmt.Errorf("it replaces %d segments of %d by %d rows", b.Until, len(s.Transcript), len(b.Refs))
	case b.Before < 0 || b.After < 0:
		return fmt.Errorf("its sizes, %d and %d tokens, are negative", b.Before, b.After)
	}
	return nil
}
