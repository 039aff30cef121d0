package event

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Position is the place of an event among the events of its run, written SEQ.DELTA. Later
// events have higher positions, and none has the position of another, except for the
// events of a relay, which have none. The zero Position is before every event.
//
// Seq is the number of the fact in the run's journal from which the event comes. Delta
// is 0, except for the pieces of what a model says (TextDelta, ReasoningDelta,
// RefusalDelta, CallDelta, Citation, NativeProgress, NativeItem and ItemDone): their Seq is that of the RoundStarted before them, and
// they count 1, 2, 3 …
//
// Positions do not change, with one exception: a run that is not durable does not store
// the pieces of what a model says. Its caller gets them counted as they arrive. Followers
// of the run, at any time, get each part of a turn as one piece.
type Position struct {
	Seq   int64
	Delta int
}

// String returns p as it is written for clients, such as "12.3".
func (p Position) String() string {
	return strconv.FormatInt(p.Seq, 10) + "." + strconv.Itoa(p.Delta)
}

// Compare returns -1 if p is before q, 0 if they are equal, and +1 if p is after q.
func (p Position) Compare(q Position) int {
	return cmp.Or(cmp.Compare(p.Seq, q.Seq), cmp.Compare(p.Delta, q.Delta))
}

// ParsePosition reads what String has written. It refuses any other spelling.
func ParsePosition(s string) (Position, error) {
	seq, delta, _ := strings.Cut(s, ".")
	var p Position
	var err error
	if p.Seq, err = strconv.ParseInt(seq, 10, 64); err == nil {
		p.Delta, err = strconv.Atoi(delta)
	}
	if err != nil || p.Seq < 0 || p.Delta < 0 || p.String() != s {
		return Position{}, fmt.Errorf("%.40q is not a position of an event; want two numbers with a dot between them, such as 12.3", s)
	}
	return p, nil
}
