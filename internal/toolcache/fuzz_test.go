package toolcache

import (
	"bytes"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// FuzzForgery checks that Get uses an entry only unmodified and for its own call, and
// that it deletes any other. // F03
func FuzzForgery(f *testing.F) {
	f.Add("o", "s", "t", "a", "value", "another", []byte{}, uint8(0), int64(0))
	f.Add("o", "s", "t", "a", "value", "value", []byte("mac"), uint8(1), int64(0))
	f.Add("ab", "c", "d", "", "v", "v", []byte{}, uint8(2), int64(1))
	f.Add("o", "s", "t", "{}", "v", "w", []byte{}, uint8(3), int64(60_000)) // extended lifetime
	f.Fuzz(func(t *testing.T, orgID, server, toolName, arguments, value, other string, mac []byte, what uint8, shift int64) {
		store := &fakeStore{}
		now := time.UnixMilli(1_000_000)
		c := New(store, Options{Pepper: "pepper", Now: func() time.Time { return now }})
		key := run.CacheKey{Org: orgID, Server: server, Tool: toolName, Digest: "d", Arguments: arguments}
		c.Put(t.Context(), key, value, time.Minute)
		if got, ok := c.Get(t.Context(), key); !ok || got != value {
			t.Fatalf("%q, %v", got, ok)
		}
		at := storeKey{orgID, nameOf(key)}
		row, asked := store.entries[at], key
		switch what % 5 {
		case 0:
			row.Value = other
		case 1:
			row.MAC = mac
		case 2: // the boundary between two parts of the key is moved
			asked.Server, asked.Tool = server+toolName, ""
			store.entries[storeKey{orgID, nameOf(asked)}] = row
		case 3:
			row.ExpiresAt += shift
		case 4:
			row.MAC = New(store, Options{Pepper: other}).seal(key, row)
		}
		store.entries[at] = row
		untouched := what%5 == 0 && other == value || what%5 == 1 && bytes.Equal(mac, c.seal(key, row)) || what%5 == 2 && toolName == "" ||
			what%5 == 3 && shift == 0 || what%5 == 4 && other == "pepper"
		got, ok := c.Get(t.Context(), asked)
		switch {
		case ok != untouched:
			t.Fatalf("attack %d: Get found an entry: %v, want %v", what%5, ok, untouched)
		case ok && got != value:
			t.Fatalf("Get = %q, want %q", got, value)
		case !ok && store.dropped != 1:
			t.Fatalf("%d entries deleted, want 1", store.dropped)
		}
	})
}
