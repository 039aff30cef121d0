package journal

import (
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// Unreadable says that a part of what is stored for a run cannot be decoded: a newer
// build has written it, or it is damaged. It names the first such part, which is a fact
// or a row of the journal, or a conversation.
type Unreadable struct {
	Seq     int64           // of the fact; 0 = it is no fact
	Kind    loop.Kind       // of the fact
	Version int             // of the fact
	Ref     string          // of the row; empty = it is no row
	Key     ConversationKey // of the conversation; zero = it is none
	Err     error           // why it cannot be decoded

	Conversation *Conversation // what can be read of the conversation: RunID, Part and Parts; nil = it is none

	Story *Story // what can be read: without the facts that cannot be decoded
	Last  int64  // the number of the journal's last fact
}

func (u *Unreadable) Error() string {
	switch {
	case u.Ref != "":
		return fmt.Sprintf("row %s cannot be decoded: %v", u.Ref, u.Err)
	case u.Key.ID != "":
		return fmt.Sprintf("%s cannot be decoded: %v", u.Key.title(), u.Err)
	}
	return fmt.Sprintf("fact %d cannot be decoded: %v", u.Seq, u.Err)
}

// Unwrap returns Err.
func (u *Unreadable) Unwrap() error { return u.Err }

// Newer reports whether a newer build has written the fact: its kind or its version is unknown. What
// this build must learn of a fact with an unknown value does not follow from these two.
func (u *Unreadable) Newer() bool {
	return errors.Is(u.Err, loop.ErrUnknownKind) || errors.Is(u.Err, loop.ErrUnknownVersion) || errors.Is(u.Err, item.ErrUnknownVersion)
}

// Aside is the reason for which a run is set aside: no process claims it. The zero value
// means that it is not set aside.
type Aside struct {
	Reason string `json:"reason"` // for people
	Build  string `json:"build"`  // which could not decode what is stored
	At     int64  `json:"at"`     // Unix milliseconds

	// Kind and Version are those of the fact that a newer build has written; "" and 0 =
	// something else cannot be decoded.
	Kind    loop.Kind `json:"kind,omitempty"`
	Version int       `json:"version,omitempty"`
}

// Again reports whether a build may be able to go on with the run: it can decode the fact
// that was unknown or, if that was something else, it is another build.
func (a Aside) Again(build string) bool {
	if a.Kind != "" {
		return loop.CanDecode(a.Version, a.Kind) == nil
	}
	return a.Build != build
}

// Damaged returns the error for a row that cannot be decoded.
func Damaged(ref string, err error) error { return &Unreadable{Ref: ref, Err: err} }
