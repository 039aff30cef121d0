package loop

import (
	"fmt"
	"slices"

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

// Seen returns the references of the items that the model sees, in order: those of the
// transcript, with the latest replacement in place of what it replaces.
func (s *State) Seen() []string {
	var refs []string
	from := 0
	for _, seg := range slices.Backward(s.Transcript) {
		if seg.Kind == Replacement {
			refs, from = append(refs, seg.Refs...), seg.Until
			break
		}
	}
	for _, seg := range s.Transcript[from:] {
		if seg.Kind != Replacement {
			refs = append(refs, seg.Ref)
		}
	}
	return refs
}

// HiddenRefs returns the references of the items that the caller did not send with its
// request and does not see, in order. A compaction does not change them: it is about what the
// model sees, and the caller's conversation goes on with the items themselves.
func (s *State) HiddenRefs() []string {
	var refs []string
	for _, seg := range s.Transcript {
		if seg.Kind == Own || seg.Kind == Added {
			refs = append(refs, seg.Ref)
		}
	}
	return refs
}

// Adder says who added input to a run.
type Adder string

// The adders.
const (
	ByClient Adder = "client" // the caller: with its request, or with one that continues the run
	ByHook   Adder = "hook"   // a hook
	ByOther  Adder = "other"  // somebody who has access to the run, such as the sender of a message to its session
)

// addInput appends the input to the transcript. Input that arrives during a model call, or while
// calls have no results, follows the answer and its results: the model sees it in its next turn.
func (s *State) addInput(b InputAdded) {
	s.UncountedBytes += b.Bytes
	s.Truncated = s.Truncated || b.Truncated
	seg := Segment{Kind: Added, Ref: b.ItemsRef, Bytes: b.Bytes}
	if b.By == ByClient && s.Turn == nil && s.Attempt.Number == 0 {
		seg.Kind = Input
	}
	if s.Attempt.Open || s.callsOpen() {
		s.late = append(slices.Clip(s.late), seg)
		return
	}
	s.extend(seg)
	s.Unanswered = s.Turn != nil
}

// callsOpen reports whether a call of the latest turn has no result in the transcript.
func (s *State) callsOpen() bool { return len(s.Calls) > 0 && !s.resultsAppended }

// extend appends segments to the transcript, in a copy of it.
func (s *State) extend(segments ...Segment) {
	s.Transcript = append(slices.Clip(s.Transcript), segments...)
}

// admitLate appends the input that waits for its place.
func (s *State) admitLate() {
	s.extend(s.late...)
	s.late = nil
}

// lateBytes is the size of the input that waits for its place.
func (s *State) lateBytes() (n int64) {
	for _, seg := range s.late {
		n += seg.Bytes
	}
	return n
}

// compact makes the model see the replacement. A model call that failed because the context was
// too long is then made again.
func (s *State) compact(b Compacted) {
	s.spend(s.Cost(b))
	s.Usage = s.Usage.Add(b.Usage)
	s.Reserved = nil
	if b.Failed || !s.replaces(b) {
		return
	}
	s.extend(Segment{Kind: Replacement, Refs: b.Refs, Until: b.Until})
	s.CountedTokens, s.UncountedBytes = max(0, b.After), s.lateBytes()
	s.Attempt.Compacted = s.Attempt.Failed != nil
}

// replaces reports whether the compaction replaces segments of the transcript, and more of them
// than the one before it.
func (s *State) replaces(b Compacted) bool {
	replaced := 0
	for _, seg := range s.Transcript {
		replaced = max(replaced, seg.Until)
	}
	return len(b.Refs) > 0 && b.Until > replaced && b.Until <= len(s.Transcript)
}

// allowCompacted allows it before a model call, and after one that failed because the context
// is too long.
func (s *State) allowCompacted(b Compacted) error {
	_, calls := Decide(*s).(CallModel)
	end, ends := Decide(*s).(Finish)
	tooLong := ends && end.Reason == event.TooLong && s.Ended == "" && !s.relays()
	switch {
	case s.Attempt.Open || s.relays() || !calls && !tooLong:
		return s.expects(CallModel{}, false)
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
