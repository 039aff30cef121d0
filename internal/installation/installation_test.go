package installation

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Three master keys, as openssl rand -base64 32 makes them.
const (
	one   = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="
	two   = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
	three = "s0R4mT8qLxZcVbNiUyEeWwQaPpKkJhGg7d6f5a3s2d1="
)

// table is a Secrets in memory.
type table struct {
	mu     sync.Mutex
	rows   map[string]Row
	before func(name string) // called before a row is added, without mu; nil = nothing
}

func newTable() *table { return &table{rows: map[string]Row{}} }

func (t *table) Read(_ context.Context, name string) (Row, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.rows[name]
	if !ok {
		return Row{}, ErrNotFound
	}
	return r, nil
}

func (t *table) PutIfAbsent(_ context.Context, r Row) error {
	if t.before != nil {
		t.before(r.Name)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.rows[r.Name]; !ok {
		t.rows[r.Name] = r
	}
	return nil
}

func (t *table) Replace(_ context.Context, was, is Row) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now := t.rows[is.Name]; now.same(was) && bytes.Equal(now.Sealed, was.Sealed) {
		t.rows[is.Name] = is
	}
	return nil
}

func value(text string) secret.Value { return secret.NewValue(text) }

func mustOpen(t *testing.T, s Secrets, c Configured) *Keys {
	t.Helper()
	keys, err := Open(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// refuses fails the test unless the start is refused with an error about the setting that has the text and no secret.
func refuses(t *testing.T, s Secrets, c Configured, setting, text string) {
	t.Helper()
	_, err := Open(t.Context(), s, c)
	var mismatch *MismatchError
	if !errors.As(err, &mismatch) || mismatch.Setting != setting || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want %s: %s", err, setting, text)
	}
	if err != nil && (strings.Contains(err.Error(), "CANARY") || strings.Contains(err.Error(), one[:20]) || strings.Contains(err.Error(),
		two[:20])) {
		t.Errorf("the error has a secret: %v", err)
	}
}

func sameKeys(a, b *Keys) bool {
	sealed, err := a.Runs.Seal("o", "n", value("x"))
	if err != nil {
		return false
	}
	opened, err := b.Runs.Open("o", "n", sealed)
	return err == nil && opened.Reveal() == "x" && a.Pepper.Equal(b.Pepper) && bytes.Equal(a.URLs, b.URLs) && a.Audit.Equal(b.Audit)
}

func TestAllReplicasHaveTheKeysOfTheFirst(t *testing.T) {
	s := newTable()
	first := mustOpen(t, s, Configured{Master: value(one)})
	if len(first.URLs) != 32 || first.Pepper.IsZero() || len(first.Audit) != ed25519.PrivateKeySize || !first.Renews {
		t.Errorf("%+v", first)
	}
	raw, err := base64.RawURLEncoding.DecodeString(strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(one))
	if err != nil {
		t.Fatal(err)
	}
	if second := mustOpen(t, s, Configured{Master: value(base64.RawURLEncoding.EncodeToString(raw))}); !sameKeys(first,
		second) { // the same key in another form
		t.Error("the second start has other keys")
	}
	for name, row := range s.rows {
		if name != row.Name || len(row.Salt) != 32 || len(row.Digest) != 32 || (row.Sealed == nil) != (name == Master) {
			t.Errorf("%s: %+v", name, row)
		}
		for _, plain := range [][]byte{raw, first.URLs, first.Audit.Seed(), []byte(first.Pepper.Reveal())} {
			if all := bytes.Join([][]byte{row.Salt, row.Digest, row.Sealed}, nil); bytes.Contains(all, plain) {
				t.Errorf("%s has a secret in the clear", name)
			}
		}
	}
	key, err := Audit(t.Context(), s, Configured{Master: value(one)})
	if err != nil || !key.Equal(first.Audit) {
		t.Errorf("%v", err)
	}
	sealed, err := mustKeyring(t, one).Seal("o", "n", value("x"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := first.Runs.Open("o", "n", sealed); err != nil || v.Reveal() != "x" {
		t.Errorf("a run that the master key has sealed: %v", err)
	}
}

func mustKeyring(t *testing.T, key string) *secret.Keyring {
	t.Helper()
	k, err := secret.NewKeyring(value(key))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAReplicaWithAnotherSecretDoesNotStart(t *testing.T) {
	audit, other := ed25519.NewKeyFromSeed(random()), ed25519.NewKeyFromSeed(random())
	given := Configured{Master: value(one), Pepper: value("CANARY-1"), Audit: audit}
	s := newTable()
	if keys := mustOpen(t, s, given); keys.Pepper.Reveal() != "CANARY-1" || !keys.Audit.Equal(audit) {
		t.Errorf("%+v", keys)
	}
	mustOpen(t, s, given)
	refuses(t, s, Configured{Master: value(two), Pepper: given.Pepper, Audit: audit}, "master_key", "set it to the key that the other "+
		"replicas have")
	refuses(t, s, Configured{Master: value(two), Previous: value(three), Pepper: given.Pepper, Audit: audit}, "master_key", "neither "+
		"master_key nor master_key_previous")
	refuses(t, s, Configured{Master: value(one), Pepper: value("CANARY-2"), Audit: audit}, "cache_pepper", "delete the row 'cache_pepper' "+
		"of the table installation")
	refuses(t, s, Configured{Master: value(one), Audit: audit}, "cache_pepper", "is missing")
	refuses(t, s, Configured{Master: value(one), Pepper: given.Pepper, Audit: other}, "audit.key", "set it to the value that the other "+
		"replicas have")
	refuses(t, s, Configured{Master: value(one), Pepper: given.Pepper}, "audit.key", "is missing")
	if _, err := Audit(t.Context(), s, Configured{Master: value(one)}); err == nil {
		t.Error("a key that the table does not have was read")
	}
	made := newTable()
	mustOpen(t, made, Configured{Master: value(one)})
	refuses(t, made, Configured{Master: value(one), Pepper: value("CANARY-1")}, "cache_pepper", "remove the setting")
	refuses(t, made, Configured{Master: value(one), Audit: other}, "audit.key", "remove the setting")
}

// Several starters that find nothing have the keys of one of them.
func TestStartersThatRaceAgree(t *testing.T) {
	s := newTable()
	const starters = 2
	var met sync.WaitGroup
	met.Add(starters)
	s.before = func(name string) {
		if name == Pepper { // each has made a pepper before one of them is stored
			met.Done()
			met.Wait()
		}
	}
	keys, errs := make([]*Keys, starters), make([]error, starters)
	var all sync.WaitGroup
	for i := range starters {
		all.Go(func() { keys[i], errs[i] = Open(t.Context(), s, Configured{Master: value(one)}) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if !sameKeys(keys[0], keys[1]) {
		t.Error("two starters have different keys")
	}
}

// Of two starters with different secrets one is refused.
func TestStartersWithDifferentSecretsRace(t *testing.T) {
	s := newTable()
	var met sync.WaitGroup
	met.Add(2)
	s.before = func(name string) {
		if name == Master {
			met.Done()
			met.Wait()
		}
	}
	errs := make([]error, 2)
	var all sync.WaitGroup
	for i, key := range []string{one, two} {
		all.Go(func() { _, errs[i] = Open(t.Context(), s, Configured{Master: value(key)}) })
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("%v, %v", errs[0], errs[1])
	}
}

func TestTheMasterKeyIsChanged(t *testing.T) {
	s := newTable()
	first := mustOpen(t, s, Configured{Master: value(one)})
	ready := Configured{Master: value(one), Previous: value(two)} // opens what the others seal from now on
	mustOpen(t, s, ready)
	changed := Configured{Master: value(two), Previous: value(one)}
	if k := mustOpen(t, s, changed); !sameKeys(first, k) || !k.Renews {
		t.Error("the change has another key")
	}
	mustOpen(t, s, changed) // the second replica
	old := mustOpen(t, s, ready)
	if !sameKeys(first, old) || old.Renews {
		t.Error("a replica with the old key has other keys, or seals under it")
	}
	refuses(t, s, Configured{Master: value(one)}, "master_key", "set master_key_previous to the other key")
	refuses(t, s, Configured{Master: value(three), Previous: value(one)}, "master_key", "another rotation")
	if k := mustOpen(t, s, Configured{Master: value(two)}); !sameKeys(first, k) {
		t.Error("the change has lost a key")
	}
	refuses(t, s, Configured{Master: value(one)}, "master_key", "is not that of the installation")
	again := mustOpen(t, s, Configured{Master: value(three), Previous: value(two)})
	if k := mustOpen(t, s, Configured{Master: value(three)}); !sameKeys(first, again) || !sameKeys(first, k) {
		t.Error("the second change has lost a key")
	}
	refuses(t, s, Configured{Master: value(two)}, "master_key", "is not that of the installation")
}

func TestADamagedRowIsNotUsed(t *testing.T) {
	s := newTable()
	mustOpen(t, s, Configured{Master: value(one)})
	for _, name := range []string{Pepper, AuditKey, URLKey, RunKey} {
		broken := &table{rows: maps.Clone(s.rows)}
		row := broken.rows[name]
		row.Sealed = s.rows[Pepper].Sealed // of another row
		if name == Pepper {
			row.Sealed = s.rows[RunKey].Sealed
		}
		broken.rows[name] = row
		if _, err := Open(t.Context(), broken, Configured{Master: value(one)}); err == nil || !strings.Contains(err.Error(), "'"+name+"' in "+
			"the table installation is damaged") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), s, Configured{}); err == nil || !strings.Contains(err.Error(), "master_key") {
		t.Errorf("without a master key: %v", err)
	}
}

func TestCheckChangesNothing(t *testing.T) {
	s := newTable()
	if err := Check(t.Context(), s, Configured{Master: value(one)}); err != nil || len(s.rows) != 0 {
		t.Errorf("%d rows, %v", len(s.rows), err)
	}
	mustOpen(t, s, Configured{Master: value(one)})
	before := maps.Clone(s.rows)
	if err := Check(t.Context(), s, Configured{Master: value(two), Previous: value(one)}); err != nil {
		t.Error(err)
	}
	var mismatch *MismatchError
	if err := Check(t.Context(), s, Configured{Master: value(two)}); !errors.As(err, &mismatch) {
		t.Errorf("%v", err)
	}
	for name, row := range s.rows {
		if was := before[name]; !row.same(was) || !bytes.Equal(row.Sealed, was.Sealed) || len(before) != len(s.rows) {
			t.Errorf("%s has changed", name)
		}
	}
}

func TestKeysOfFilesAreCarriedOver(t *testing.T) {
	s := newTable()
	k := Carried{Audit: ed25519.NewKeyFromSeed(random()), URLs: random(), Runs: random()}
	for range 2 {
		if err := Carry(t.Context(), s, Configured{Master: value(one)}, k); err != nil {
			t.Fatal(err)
		}
	}
	keys := mustOpen(t, s, Configured{Master: value(one)})
	if !keys.Audit.Equal(k.Audit) || !bytes.Equal(keys.URLs, k.URLs) || !bytes.Equal(keys.RunKey, k.Runs) {
		t.Error("the keys are others")
	}
	if err := Carry(t.Context(), newTable(), Configured{Master: value(one)}, Carried{URLs: []byte("short")}); err == nil {
		t.Error("a short key was carried over")
	}
	named, none := Configured{Master: value(one), Audit: ed25519.NewKeyFromSeed(random())}, newTable()
	if err := Carry(t.Context(), none, named, Carried{Audit: k.Audit}); err != nil || len(none.rows) != 0 {
		t.Errorf("%d rows, %v", len(none.rows), err)
	}
}
