package directory

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// A key ends at expires_at, and the old secret of a rotated key at the end of its overlap. Runs
// of an expired key may not go on, and keys that expire within 7 days are counted. // P46
func TestKeysAndTheirOldSecretsExpire(t *testing.T) {
	d, store := testDirectory(t)
	now := time.UnixMilli(1_000_000_000).UTC()
	d.options.Now = func() time.Time { return now }
	day := 24 * time.Hour
	k := org.Key{
		Org: "a", ID: "app", Hash: sha256.Sum256([]byte("new")), ExpiresAt: now.Add(10 * day),
		Previous: org.PreviousSecret{Hash: sha256.Sum256([]byte("old")), Until: now.Add(day)},
	}
	if err := store.CreateKey(t.Context(), k, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Reload(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	works := func(secret string) bool {
		caller, ok := d.Authenticate(t.Context(), secret)
		return ok && !caller.Principal.Expired(now)
	}
	for _, at := range []struct {
		after    time.Duration
		old, new bool
		gone     string
		expiring int
	}{{0, true, true, "", 0}, {day - 1, true, true, "", 0}, {day, false, true, "", 0}, {3 * day, false, true, "", 1}, {10 * day, false, false, loop.KeyExpired, 0}} {
		now = time.UnixMilli(1_000_000_000).UTC().Add(at.after)
		if old, fresh, gone, n := works("old"), works("new"), d.Gone("a", "app"), d.Expiring(); old != at.old || fresh != at.new || gone != at.gone || n != at.expiring {
			t.Errorf("after %v: old %v, new %v, gone %q, %d expire soon; want %+v", at.after, old, fresh, gone, n, at)
		}
	}
	if got := d.Access("a", "unknown"); got.AllowsModel("m") {
		t.Error("an unknown key may use something")
	}
}
