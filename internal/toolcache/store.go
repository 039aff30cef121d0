package toolcache

import (
	"context"
	"crypto/sha256"
)

// The limits per org. Beyond MaxBytes and MaxEntries the oldest entries are deleted.
const (
	MaxValue   = 1 << 20  // bytes of one result; longer results are not cached
	MaxBytes   = 64 << 20 // bytes of all results
	MaxEntries = 10_000
)

// Name is the key of an entry within its org.
type Name [sha256.Size]byte

// Entry is a result as it is stored. Times are Unix milliseconds.
type Entry struct {
	Name      Name
	Value     string // the result; any bytes
	MAC       []byte
	KeptAt    int64 // when Put was called
	ExpiresAt int64
}

// fresh reports whether the entry may be used now. An entry from the future may not:
// the wall clock was set back, so its age is unknown.
func (e Entry) fresh(now int64) bool { return e.KeptAt <= now && now < e.ExpiresAt }

// Bounds limit the entries of an org, and the bytes of their values.
type Bounds struct {
	Entries int
	Bytes   int64
}

// Store stores entries. Deleting an org deletes its entries. Implemented by
// store/database; store/storetest tests the contract.
type Store interface {
	// CachedResult returns the org's entry with the name, also if it has expired;
	// nil and no error if there is none.
	CachedResult(ctx context.Context, org string, name Name) (*Entry, error)

	// KeepResult stores the entry and replaces one with the same name. It then
	// deletes expired entries, and the oldest until the org is within the bounds.
	//
	// It does not block. It calls done exactly once: with nil when the entry is
	// stored, else with the error (org.ErrNotFound if there is no such org). It may
	// call done before it returns. done must not block.
	KeepResult(org string, e Entry, b Bounds, done func(error))

	// DropResult deletes the entry if the org's entry with its name still has its
	// MAC. It does not block and reports no error: an entry that stays is dropped
	// when it is read again.
	DropResult(org string, e Entry)
}
