package resulttool

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/tool"
)

// FuzzReadResult: whatever the model asks for, it is answered with a piece of the
// result where the answer says that it is from, in whole characters; and who
// goes on where a piece ended reads all of it. // P16
func FuzzReadResult(f *testing.F) {
	f.Add("hello", `{"id":"a.0.0"}`, 200)
	f.Add(strings.Repeat("é😀", 200), `{"id":"a.0.0","offset":3,"length":1}`, 200)
	f.Add("\x80\x80\xff", `{"id":"a.0.0","offset":1,"length":9223372036854775807}`, 0)
	f.Add("abc", `{"id":"a.0.0","offset":-1,"length":-5}`, 200)
	f.Fuzz(func(t *testing.T, text, args string, limit int) {
		if !json.Valid([]byte(args)) {
			return
		}
		limit %= 1 << 16
		text = strings.ToValidUTF8(text, "\ufffd") // results are mended before they are kept
		r := readResult{results: map[string]string{"a.0.0": text}, limit: limit}
		got, err := r.Call(t.Context(), tool.Call{Arguments: json.RawMessage(args)})
		if err != nil || len(got.Parts) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		if !got.IsError {
			checkPiece(t, text, got.Parts[0].Text, limit)
		}
		var all strings.Builder
		for at, n := 0, 0; at < len(text) && n < 200; n++ {
			got, err := r.Call(t.Context(), tool.Call{Arguments: fmt.Appendf(nil, `{"id":"a.0.0","offset":%d}`, at)})
			if err != nil || got.IsError {
				t.Fatalf("offset %d of %d: %+v, %v", at, len(text), got, err)
			}
			from, to := checkPiece(t, text, got.Parts[0].Text, limit)
			if from != at {
				t.Fatalf("offset %d begins at %d", at, from)
			}
			all.WriteString(text[from:to])
			at = to
		}
		if !strings.HasPrefix(text, all.String()) {
			t.Fatalf("%q was read as %q", text, all.String())
		}
	})
}

// checkPiece returns where the piece is from.
func checkPiece(t *testing.T, text, answer string, limit int) (from, to int) {
	t.Helper()
	var whole int
	if n, err := fmt.Sscanf(answer, "[bytes %d to %d of %d]\n", &from, &to, &whole); n != 3 || err != nil {
		t.Fatalf("%q: %v", answer, err)
	}
	_, piece, _ := strings.Cut(answer, "\n")
	switch {
	case whole != len(text) || from < 0 || from >= to || to > len(text) || text[from:to] != piece:
		t.Fatalf("%q is not a piece of %q", answer, text)
	case len(answer) > max(limit, 256+utf8.UTFMax):
		t.Fatalf("%d bytes, the limit is %d", len(answer), limit)
	case utf8.ValidString(text) && !utf8.ValidString(piece):
		t.Fatalf("%q has half a character", piece)
	}
	return from, to
}
