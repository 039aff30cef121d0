package toolcache

import (
	"context"
	"crypto/sha256"
)

// The bounds of what is kept of an org. Beyond them the oldest entries go.
const (
	MaxValue   = 1 << 20  // bytes of one result: longer ones are not kept
	MaxBytes   = 64 << 20 // bytes of an org's results together
	MaxEntries = 10_000   // results of an org
)

// Name is what an entry is kept under, in its org.
type Name [sha256.Size]byte

// Entry is a result as it is stored. Times are Unix milliseconds.
type Entry struct {
	Name      Name
	Value     string // any bytes
	MAC       []byte
	KeptAt    int64
	ExpiresAt int64
}

// fresh reports whether the entry may be used now. One that was kept in the future
// may not: the wall clock was set back since, and nobody can say how old it is.
func (e Entry) fresh(now int64) bool { return e.KeptAt <= now && now < e.ExpiresAt }

// Bounds are how much of an org's is kept: entries, and bytes of their values.
type Bounds struct {
	Entries int
	Bytes   int64
}

// Store keeps entries, which belong to an org and go with it. Implemented by
// store/memory and store/sqlite; store/storetest says what that means.
type Store interface {
	// CachedResult returns what the org keeps under the name, whether or not
	// its time is over; nil for nothing.
	CachedResult(ctx context.Context, org string, name Name) (*Entry, error)

	// KeepResult keeps the entry in the place of what is there under its name,
	// drops entries whose time is over, and then the oldest until the org's are
	// within the bounds. It does not wait: done is called once when the entry is
	// kept, or with the reason why it is not (ErrNotFound of package org without
	// the org). It may be called before KeepResult returns, and must not block.
	KeepResult(org string, e Entry, b Bounds, done func(error))

	// DropResult drops the entry, if what the org keeps under its name is still
	// that with its MAC. It does not wait; an entry that stays is met again.
	DropResult(org string, e Entry)
}
