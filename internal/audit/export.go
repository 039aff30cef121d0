package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/id"
)

// RowView is the public form of a row, over the API, on the command line and in an
// export. Ids of runs and requests are UUIDs in it, see [id.UUID]. The store holds
// them in a short form, and Hash covers the short form.
type RowView struct {
	Org       string          `json:"org"`
	Number    int64           `json:"number"`
	At        string          `json:"at"` // RFC 3339, milliseconds, UTC
	Kind      Kind            `json:"kind"`
	Principal string          `json:"key_id"`
	RunID     *string         `json:"agent_run_id"` // nil for a relayed request
	RequestID string          `json:"request_id"`
	Body      json.RawMessage `json:"body"`
	Hash      string          `json:"hash"`
}

const timeLayout = "2006-01-02T15:04:05.000Z"

// View returns the public form of the row.
func (r Row) View() RowView {
	s := RowView{
		Org: r.Org, Number: r.Number, At: time.UnixMilli(r.At).UTC().Format(timeLayout), Kind: r.Kind,
		Principal: r.Principal, RequestID: id.UUID(r.RequestID), Body: r.Body, Hash: r.Hash.String(),
	}
	if r.RunID != "" {
		shown := id.UUID(r.RunID)
		s.RunID = &shown
		if r.Kind == KindToolCall || r.Kind == KindCollision || r.Kind == KindApproval || r.Kind == KindHook { // these bodies contain the run id too
			s.Body = json.RawMessage(strings.Replace(string(r.Body), `"`+r.RunID+`"`, `"`+shown+`"`, 1))
		}
	}
	return s
}

// Trailer is the last line of an export. An export without it is incomplete.
type Trailer struct {
	Rows   int64  `json:"rows"`
	First  int64  `json:"first"` // addRow number; 0 = no rows
	Last   int64  `json:"last"`
	SHA256 string `json:"sha256"` // of all lines before the trailer, in hexadecimal
}

// Rows reads rows. [Log] implements it.
type Rows interface {
	AuditRows(ctx context.Context, org string, q Query) ([]Row, error)
}

// exportBytes is the size from which an export writes the rows that it has read before it reads
// more: a client that does not read its export holds no more.
const exportBytes = 64 << 10

// Export writes the rows that q selects, one JSON object per line, followed by the
// [Trailer]. It ignores q.Limit and q.Bytes.
func Export(ctx context.Context, w io.Writer, org string, rows Rows, q Query) (Trailer, error) {
	sum := sha256.New()
	lines := json.NewEncoder(visibleJSON{io.MultiWriter(w, sum)})
	lines.SetEscapeHTML(false)
	var t Trailer
	for q.Limit, q.Bytes = MaxRows, exportBytes; ; {
		page, err := rows.AuditRows(ctx, org, q)
		if err != nil {
			return t, err
		}
		size := 0
		for _, r := range page {
			size += r.Size()
			if err := lines.Encode(r.View()); err != nil {
				return t, fmt.Errorf("row %d: %w", r.Number, err)
			}
			if t.First == 0 {
				t.First = r.Number
			}
			t.Rows++
			t.Last, q.After = r.Number, r.Number
		}
		if !q.Full(len(page), size) {
			break
		}
	}
	t.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return t, json.NewEncoder(w).Encode(t)
}

// visibleJSON escapes control and format characters, which could change how a
// terminal shows an export. The JSON value stays the same.
type visibleJSON struct{ w io.Writer }

// Write implements io.Writer; p must consist of whole lines of JSON.
func (v visibleJSON) Write(p []byte) (int, error) {
	var line []byte
	for at, r := range string(p) {
		hidden := r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == utf8.RuneError)
		switch {
		case hidden && line == nil:
			line = append(line, p[:at]...)
			fallthrough
		case hidden:
			for _, unit := range utf16.AppendRune(nil, r) {
				line = fmt.Appendf(line, `\u%04x`, unit)
			}
		case line != nil:
			line = utf8.AppendRune(line, r)
		}
	}
	if line == nil {
		return v.w.Write(p)
	}
	_, err := v.w.Write(line)
	return len(p), err
}
