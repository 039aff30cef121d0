package loop

// Segment is a row of items in the transcript of a run. Nothing is ever removed from a
// transcript: see [State.Seen] for what the model sees of it.
type Segment struct {
	Kind  SegmentKind
	Ref   string // of the row with the items
	Bytes int64  // size of the items in a prompt; 0 = not known
	At    int64  // when it was appended, in Unix milliseconds
	Round int    // of an answer of the model

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
