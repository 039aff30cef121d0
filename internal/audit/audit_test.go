package audit_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/database/sqlitetest"
)

func key() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

func public() ed25519.PublicKey { return key().Public().(ed25519.PublicKey) }

func record(t *testing.T, j *database.Store, n int, at time.Time) {
	t.Helper()
	for i := range n {
		if err := j.Record(t.Context(), "o", audit.Entry{Kind: "k", At: at.UnixMilli(), Body: i}); err != nil {
			t.Fatal(err)
		}
	}
	written(t, j)
}

// written returns after all rows are written that were recorded: the store writes them in groups, and before a checkpoint.
func written(t *testing.T, j *database.Store) {
	t.Helper()
	if err := j.AddCheckpoint(t.Context(), audit.Checkpoint{Org: "nobody's"}.Sign(key())); err != nil {
		t.Fatal(err)
	}
}

func verify(t *testing.T, j *database.Store, witness []audit.Checkpoint) audit.Report {
	t.Helper()
	r, err := audit.Verify(t.Context(), "o", j, public(), witness)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A kind that Kinds does not return cannot be queried.
func TestKindsReturnsAllKinds(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "audit.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []audit.Kind
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Kind" {
			return true
		}
		for _, v := range spec.Values {
			text, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, audit.Kind(text))
		}
		return true
	})
	kinds := audit.Kinds()
	slices.Sort(declared)
	slices.Sort(kinds)
	if len(declared) == 0 || !slices.Equal(declared, kinds) {
		t.Errorf("Kinds returns %q, and audit.go declares %q", kinds, declared)
	}
	for _, k := range kinds {
		for _, text := range []string{string(k), k.Short()} {
			if got, err := audit.ParseKind(text); got != k || err != nil {
				t.Errorf("ParseKind(%q) is %q, %v", text, got, err)
			}
		}
	}
	if _, err := audit.ParseKind("audit_log.tool_call"); err == nil || !strings.Contains(err.Error(), string(audit.KindToolCall)) {
		t.Errorf("an unknown kind: %v", err)
	}
}

// A checkpoint is signed every 1,000 rows, every minute, and at the end. // P09
func TestCheckpointsAreSignedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := sqlitetest.Open(t, database.Options{})
		var witness []audit.Checkpoint
		k := audit.NewKeeper(audit.KeeperOptions{Log: j, Key: key(), Witness: func(c audit.Checkpoint) error {
			witness = append(witness, c)
			return nil
		}})
		k.Start()
		signed := func(wait time.Duration, want int64) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if r := verify(t, j, nil); r.SignedTo != want || len(r.Findings) > 0 {
				t.Errorf("signed up to row %d, want %d: %v", r.SignedTo, want, r.Findings)
			}
		}
		record(t, j, 10, time.Now())
		signed(6*time.Second, 10) // no earlier checkpoint
		record(t, j, 10, time.Now())
		signed(30*time.Second, 10)
		signed(31*time.Second, 20)
		record(t, j, 1000, time.Now())
		signed(6*time.Second, 1020)
		record(t, j, 1, time.Now())
		if err := k.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		signed(0, 1021)
		if len(witness) != 4 {
			t.Errorf("the second place has %d checkpoints, want 4", len(witness))
		}
	})
}

// Checkpoints continue after the wall clock was set back. // P09
func TestCheckpointsAreSignedInTimeAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := sqlitetest.Open(t, database.Options{})
		var ahead atomic.Int64
		k := audit.NewKeeper(audit.KeeperOptions{
			Log: j, Key: key(), Witness: func(audit.Checkpoint) error { return nil }, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		})
		record(t, j, 10, time.Now())
		k.Start()
		defer func() { _ = k.Stop(t.Context()) }()
		time.Sleep(6 * time.Second)
		synctest.Wait()
		ahead.Store(int64(-time.Hour))
		record(t, j, 10, time.Now())
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if r := verify(t, j, nil); r.SignedTo != 20 || len(r.Findings) > 0 {
			t.Errorf("signed up to row %d, want 20: %v", r.SignedTo, r.Findings)
		}
	})
}

// Retention signs what it removes, and the remaining chain verifies. // L07
func TestRetentionRemovesOldRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := sqlitetest.Open(t, database.Options{})
		var witness []audit.Checkpoint
		k := audit.NewKeeper(audit.KeeperOptions{Log: j, Key: key(), Keep: 24 * time.Hour, Witness: func(c audit.Checkpoint) error {
			witness = append(witness, c)
			return nil
		}})
		record(t, j, 1500, time.Now().Add(-20*time.Hour))
		k.Start()
		record(t, j, 5, time.Now())
		time.Sleep(6 * time.Hour)
		synctest.Wait()
		if err := k.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		r := verify(t, j, witness)
		if r.First != 1501 || r.Last != 1505 || len(r.Findings) > 0 {
			t.Errorf("%+v", r)
		}
	})
}

// Sums of usage are removed with the rows, or when they say, a day at a time.
func TestRetentionRemovesOldSums(t *testing.T) {
	const aDay = 24 * time.Hour
	for _, tt := range []struct {
		rows, usage time.Duration
		want        int64 // days that are left of 10
	}{{0, 0, 10}, {3 * aDay, 0, 3}, {3 * aDay, 6 * aDay, 6}, {0, 2 * aDay, 2}} {
		synctest.Test(t, func(t *testing.T) {
			j := sqlitetest.Open(t, database.Options{})
			k := audit.NewKeeper(audit.KeeperOptions{Log: j, Key: key(), Keep: tt.rows, Usage: tt.usage, Witness: func(audit.Checkpoint) error { return nil }})
			for n := range 10 {
				at := time.Now().Add(time.Duration(n-10) * aDay).UnixMilli()
				if err := j.Record(t.Context(), "o", audit.Entry{Kind: audit.KindRequest, At: at, Body: audit.Request{Attempts: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			written(t, j)
			k.Start()
			time.Sleep(time.Minute)
			synctest.Wait()
			if err := k.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			all, err := audit.AddUsage(t.Context(), "o", j, audit.UsageQuery{})
			if err != nil || len(all) != 1 || all[0].Requests != tt.want {
				t.Errorf("rows kept %s and sums %s: %+v, %v; want %d days", tt.rows, tt.usage, all, err, tt.want)
			}
		})
	}
}

// A page by a frequent kind or a key reads 20,000 rows at most, and says where the next one begins. No row is
// lost between pages.
func TestAPageLooksAtAFewRows(t *testing.T) {
	var rows someRows
	for i := range 2*audit.PageReads + 500 {
		kind := audit.KindRequest
		if i%1000 == 0 {
			kind = audit.KindToolCall
		}
		rows = append(rows, audit.Row{Number: int64(i) + 101, Kind: kind, At: int64(i) + 1, Principal: fmt.Sprint("k", i%30_000)}) // 100 rows were removed
	}
	for name, tt := range map[string]struct {
		q           audit.Query
		pages, want int
	}{
		"a frequent kind":           {audit.Query{Kind: audit.KindToolCall, Limit: 10}, 5, 41}, // two full ones of each part
		"a key":                     {audit.Query{Principal: "k25000", Limit: 10}, 3, 1},
		"a key that nobody has":     {audit.Query{Principal: "x"}, 3, 0},
		"times":                     {audit.Query{From: 2*audit.PageReads + 401, Limit: 60}, 4, 100},
		"a rare kind has one part":  {audit.Query{Kind: audit.KindApproval}, 1, 0},
		"all rows are pages of all": {audit.Query{Limit: 1000}, 41, 2*audit.PageReads + 500},
	} {
		found, pages := 0, 0
		for {
			page, next, err := audit.Page(t.Context(), "o", rows, tt.q)
			if err != nil {
				t.Fatal(err)
			}
			found, pages = found+len(page), pages+1
			if next == 0 {
				break
			}
			if next <= tt.q.After || next > tt.q.After+100+audit.PageReads {
				t.Fatalf("%s: the page after %d ends at %d", name, tt.q.After, next)
			}
			tt.q.After = next
		}
		if found != tt.want || pages != tt.pages {
			t.Errorf("%s: %d rows on %d pages, want %d on %d", name, found, pages, tt.want, tt.pages)
		}
	}
}

// A checkpoint that the witness cannot store is tried again.
func TestAFailedCheckpointIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := sqlitetest.Open(t, database.Options{})
		var full atomic.Bool
		full.Store(true)
		k := audit.NewKeeper(audit.KeeperOptions{Log: j, Key: key(), Witness: func(audit.Checkpoint) error {
			if full.Load() {
				return errors.New("disk full")
			}
			return nil
		}})
		record(t, j, 3, time.Now())
		k.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		if r := verify(t, j, nil); r.SignedTo != 0 {
			t.Errorf("%+v", r)
		}
		full.Store(false)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if r := verify(t, j, nil); r.SignedTo != 3 {
			t.Errorf("%+v", r)
		}
		_ = k.Stop(t.Context())
	})
}

func TestARecomputedChainDoesNotMatchItsCheckpoint(t *testing.T) {
	j, forged := sqlitetest.Open(t, database.Options{}), sqlitetest.Open(t, database.Options{})
	record(t, j, 10, time.Unix(1, 0))
	record(t, forged, 10, time.Unix(2, 0))
	rows, err := j.AuditRows(t.Context(), "o", audit.Query{})
	if err != nil {
		t.Fatal(err)
	}
	c := audit.Checkpoint{Org: "o", Number: 7, Hash: rows[6].Hash, At: 5}.Sign(key())
	if r := verify(t, forged, []audit.Checkpoint{c}); len(r.Findings) != 1 || r.Findings[0].First != 7 {
		t.Errorf("%+v", r)
	}
	if r := verify(t, j, []audit.Checkpoint{c, c}); len(r.Findings) != 0 || r.Checkpoints != 1 || r.SignedTo != 7 {
		t.Errorf("%+v", r)
	}
}

func TestASignatureIsValidForOneCheckpointOnly(t *testing.T) {
	c := audit.Checkpoint{Org: "o", Number: 7, Hash: audit.Hash{1}, At: 5}.Sign(key())
	if err := c.Check(public()); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*audit.Checkpoint){
		"org":       func(c *audit.Checkpoint) { c.Org = "p" },
		"number":    func(c *audit.Checkpoint) { c.Number++ },
		"hash":      func(c *audit.Checkpoint) { c.Hash[31]++ },
		"time":      func(c *audit.Checkpoint) { c.At++ },
		"cut":       func(c *audit.Checkpoint) { c.Pruned = true },
		"signature": func(c *audit.Checkpoint) { c.Signature = append([]byte{c.Signature[0] + 1}, c.Signature[1:]...) },
		"nothing":   func(c *audit.Checkpoint) { c.Signature = nil },
	} {
		other := c
		change(&other)
		if other.Check(public()) == nil {
			t.Errorf("the signature is valid for another %s", name)
		}
	}
}

// The hash separates fields: moving text from one field to the next changes it.
func TestAHashSeparatesFields(t *testing.T) {
	seen := map[audit.Hash]string{}
	for _, e := range []audit.Entry{
		{Kind: "ab", Principal: "c"}, {Kind: "a", Principal: "bc"}, {Kind: "abc"}, {Principal: "abc"}, {RunID: "abc"}, {RequestID: "abc"},
		{At: 1}, {Body: 1}, {},
	} {
		row, err := audit.NextRow("o", 0, audit.Hash{}, e)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[row.Hash]; taken {
			t.Errorf("%+v has the hash of %s", e, other)
		}
		seen[row.Hash] = fmt.Sprintf("%+v", e)
	}
	second, _ := audit.NextRow("o", 1, audit.Hash{}, audit.Entry{})
	elsewhere, _ := audit.NextRow("p", 0, audit.Hash{}, audit.Entry{})
	if _, taken := seen[second.Hash]; taken || second.Hash == elsewhere.Hash {
		t.Error("a row with another number or org has the same hash")
	}
}

func TestAnIncompleteLineOfTheWitnessIsReported(t *testing.T) {
	w := audit.Witness{Path: filepath.Join(t.TempDir(), "checkpoints")}
	if got, malformed, err := w.Read(); len(got)+len(malformed) > 0 || err != nil {
		t.Fatal(got, malformed, err)
	}
	a := audit.Checkpoint{Org: "o", Number: 1, Hash: audit.Hash{1}, At: 5}.Sign(key())
	b := audit.Checkpoint{Org: "o", Number: 2, Hash: audit.Hash{2}, At: 6, Pruned: true}.Sign(key())
	if err := w.Add(a); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.Path, append(text, text[:len(text)/2]...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(b); err != nil {
		t.Fatal(err)
	}
	got, malformed, err := w.Read()
	if err != nil || len(malformed) != 1 || malformed[0].Line != 2 || len(got) != 2 || got[0].Check(public()) != nil || got[1].Check(public()) != nil || !got[1].Pruned {
		t.Errorf("%+v, %v, %v", got, malformed, err)
	}
}

func TestATooLongLineOfTheWitnessIsReported(t *testing.T) {
	w := audit.Witness{Path: filepath.Join(t.TempDir(), "checkpoints")}
	c := audit.Checkpoint{Org: "o", Number: 1, Hash: audit.Hash{1}, At: 5}.Sign(key())
	if err := w.Add(c); err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(w.Path)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 200_000)
	for _, tt := range []struct {
		name, text string
		read       int
		malformed  []audit.MalformedLine
	}{
		{"in the middle", string(line) + long + "\n" + string(line), 2, []audit.MalformedLine{{Line: 2, Reason: "longer than 65536 bytes"}}},
		{"at the end", string(line) + long, 1, []audit.MalformedLine{{Line: 2, Reason: "longer than 65536 bytes"}}},
		{"alone", long + "\n", 0, []audit.MalformedLine{{Line: 1, Reason: "longer than 65536 bytes"}}},
		{"a last line without its end", string(line) + strings.TrimSuffix(string(line), "\n"), 2, nil},
		{"nothing", "", 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := os.WriteFile(w.Path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, malformed, err := w.Read()
			if err != nil || len(got) != tt.read || !slices.Equal(malformed, tt.malformed) {
				t.Errorf("%d checkpoints, %v, %v; want %d, %v", len(got), malformed, err, tt.read, tt.malformed)
			}
			for _, c := range got {
				if err := c.Check(public()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestAKeyFileIsCreatedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	if _, err := audit.LoadKey(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	made, err := audit.LoadOrCreateKey(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := audit.LoadOrCreateKey(path)
	if err != nil || !made.Equal(again) {
		t.Errorf("%v: another key", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others can read it", info.Mode(), err)
	}
	if key, err := audit.ParsePublicKey(audit.EncodePublicKey(made)); err != nil || !key.Equal(made.Public()) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.LoadOrCreateKey(path); err == nil || strings.Contains(err.Error(), "short") {
		t.Errorf("a file without a key: %v", err)
	}
}

type failing struct{ audit.Chain }

func (failing) AuditRows(context.Context, string, audit.Query) ([]audit.Row, error) {
	return nil, errors.New("no")
}

func TestVerifyReturnsReadErrors(t *testing.T) {
	if _, err := audit.Verify(t.Context(), "o", failing{sqlitetest.Open(t, database.Options{})}, public(), nil); err == nil {
		t.Error("no error for a log that cannot be read")
	}
}

// heldRows notes the bytes of the rows of each query.
type heldRows struct {
	audit.Rows
	most int
}

func (h *heldRows) AuditRows(ctx context.Context, orgID string, q audit.Query) ([]audit.Row, error) {
	rows, err := h.Rows.AuditRows(ctx, orgID, q)
	size := 0
	for _, r := range rows {
		size += r.Size()
	}
	h.most = max(h.most, size)
	return rows, err
}

// An export holds few rows at a time, so that one whose client stops to read it holds
// little, however large the log is. // K07 P40
func TestAnExportHoldsFewRows(t *testing.T) {
	log := sqlitetest.Open(t, database.Options{})
	for range 1500 {
		if err := log.Record(t.Context(), "o", audit.Entry{Kind: audit.KindToolCall, At: 1, Principal: "p", RequestID: "r", Body: strings.Repeat("x", 2000)}); err != nil {
			t.Fatal(err)
		}
	}
	written(t, log)
	rows := &heldRows{Rows: log}
	trailer, err := audit.Export(t.Context(), io.Discard, "o", rows, audit.Query{})
	if err != nil || trailer.Rows != 1500 || trailer.Last != 1500 {
		t.Errorf("%+v, %v", trailer, err)
	}
	if rows.most > 128<<10 {
		t.Errorf("an export holds rows of %d bytes", rows.most)
	}
}
