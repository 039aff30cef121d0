package audit_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// kept is an audit.Chain in memory. The fuzz test changes it as an attacker with
// write access to the store could.
type kept struct {
	rows   []audit.Row
	points []audit.Checkpoint
}

// AuditRows implements audit.Chain.
func (k kept) AuditRows(_ context.Context, _ string, q audit.Query) ([]audit.Row, error) {
	var out []audit.Row
	for _, r := range k.rows {
		if q.Matches(r) && len(out) < q.Bounded().Limit {
			out = append(out, r)
		}
	}
	return out, nil
}

// Checkpoints implements audit.Chain.
func (k kept) Checkpoints(_ context.Context, _ string, after int64, limit int) ([]audit.Checkpoint, error) {
	var out []audit.Checkpoint
	for _, c := range k.points {
		if c.Number > after && len(out) < limit {
			out = append(out, c)
		}
	}
	return out, nil
}

// FuzzVerify: an intact chain has no findings. A chain has findings if a row was
// changed, deleted, inserted or moved, or if it was recomputed or truncated before a
// checkpoint.
func FuzzVerify(f *testing.F) {
	f.Add([]byte("abcdef"), uint8(4), uint8(2), uint8(0), "key_2", []byte("{}"))
	for how := range uint8(8) {
		f.Add([]byte("xyzzy"), uint8(5), uint8(1), how, "p", []byte(`{"a":1}`)) // chainHash the checkpoint
		f.Add([]byte("xyzzy"), uint8(4), uint8(1), how, "p", []byte(`{"a":1}`)) // before the checkpoint
	}
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))
	public := ed25519.PublicKey(key[ed25519.SeedSize:])
	f.Fuzz(func(t *testing.T, entries []byte, marked, at, how uint8, text string, body []byte) {
		if len(entries) == 0 || len(entries) > 40 || !json.Valid(body) {
			return
		}
		rows := chainOf(t, entries)
		n := len(rows)
		mark, i := 1+int(marked)%n, int(at)%n
		end := rows[mark-1]
		k := kept{slices.Clone(rows), []audit.Checkpoint{audit.Checkpoint{Org: "o", Number: end.Number, Hash: end.Hash, At: 9}.Sign(key)}}
		if r, err := audit.Verify(t.Context(), "o", k, public, k.points); err != nil || len(r.Findings) > 0 || r.Rows != int64(n) || r.SignedTo != end.Number {
			t.Fatalf("intact: %+v, %v", r, err)
		}
		r := &k.rows[i]
		touched := true
		switch how % 8 {
		case 0:
			touched = r.Principal != text
			r.Principal = text
		case 1:
			touched = !bytes.Equal(r.Body, body)
			r.Body = body
		case 2:
			touched = r.RunID != "" // text moves from one field to the next
			r.Principal, r.RunID = r.Principal+r.RunID, ""
		case 3:
			touched = i+1 < n || i < mark // removing the last row is detected only by a checkpoint
			k.rows = slices.Delete(k.rows, i, i+1)
		case 4:
			touched = i+1 < n
			if touched {
				k.rows[i], k.rows[i+1] = k.rows[i+1], k.rows[i]
				k.rows[i].Number, k.rows[i+1].Number = k.rows[i+1].Number, k.rows[i].Number
			}
		case 5: // the rest of the chain is recomputed
			other := bytes.Clone(entries)
			other[i]++
			k.rows = chainOf(t, other)
			touched = i < mark
		case 6:
			k.points[0].Number++
		case 7:
			k.points[0].Pruned = true
		}
		report, err := audit.Verify(t.Context(), "o", k, public, nil)
		if err != nil || (len(report.Findings) > 0) != touched {
			t.Fatalf("change %d at %d of %d, marked %d: findings expected: %v; %+v, %v", how%8, i, n, mark, touched, report, err)
		}
	})
}

// chainOf returns a chain with one row per byte.
func chainOf(t *testing.T, entries []byte) []audit.Row {
	t.Helper()
	var rows []audit.Row
	var last audit.Row
	for i, b := range entries {
		row, err := audit.NextRow("o", last.Number, last.Hash, audit.Entry{
			Kind: audit.KindRequest, At: int64(i), Principal: "p", RunID: string(rune('a' + b%3)), Body: map[string]int{"n": int(b)},
		})
		if err != nil {
			t.Fatal(err)
		}
		rows, last = append(rows, row), row
	}
	return rows
}

// FuzzHash: ParseHash accepts exactly what Hash.String returns, in either case.
func FuzzHash(f *testing.F) {
	f.Add("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
	f.Add("E3B0")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := audit.ParseHash(s)
		if err != nil {
			if (h != audit.Hash{}) {
				t.Fatalf("%q is refused, but the hash is %s", s, h)
			}
			return
		}
		if again, err := audit.ParseHash(h.String()); err != nil || again != h {
			t.Fatalf("%q → %s → %s, %v", s, h, again, err)
		}
	})
}
