package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// The sizes of a long result: what the tool returns, and what the model gets.
const (
	longBytes = 10 << 20
	capBytes  = 64 << 10
)

var (
	markerPattern = regexp.MustCompile(`…\[truncated; full result is (\d+) bytes\].*id "([^"]+)"`)
	piecePattern  = regexp.MustCompile(`^\[bytes (\d+) to (\d+) of (\d+)\]\n`)
)

// longScript reads the log and then four pieces of its middle, from bytes that
// lie in the midst of characters, under the id that the marker names.
func longScript(ask chatRequest) turn {
	results := ask.results()
	switch len(results) {
	case 0:
		return turn{Calls: []seenCall{{ID: "call_log", Name: "read_log", Arguments: `{}`}}}
	case 1:
		marker := markerPattern.FindStringSubmatch(results[0])
		if marker == nil || !ask.offers("read_result") {
			return unexpected("a marker that names an id, and the tool read_result,", results[0][:min(200, len(results[0]))])
		}
		var next turn
		for i := range 4 {
			next.Calls = append(next.Calls, seenCall{
				ID: fmt.Sprint("call_piece_", i), Name: "read_result",
				Arguments: fmt.Sprintf(`{"id":%q,"offset":%d,"length":%d}`, marker[2], longBytes/2+i, 4000+i),
			})
		}
		return next
	default:
		return turn{Text: results[len(results)-1]}
	}
}

// longText has numbered lines of characters of one to four bytes.
func longText() string {
	var text strings.Builder
	for i := 0; text.Len() < longBytes; i++ {
		fmt.Fprintf(&text, "%07d naïve – 東京は晴れ 🧑‍🚀 שלום\n", i)
	}
	return text.String()
}

// testLongResult lets a tool return 10 MiB.
func testLongResult(t *testing.T, s *site) { // C11, P16
	text := longText()
	file := filepath.Join(t.TempDir(), "log.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.newRigWith(t, longScript, func(*rig) []object {
		return []object{{"name": "text", "command": s.child(t, "./servers/text.mjs", file)}}
	})
	for _, c := range r.clients {
		t.Run(c.name(), func(t *testing.T) {
			got := answer(t, c, r.ask("gpt-test", "What is in the log?", false))
			seen := r.upstream.take()
			if len(seen) != 3 {
				t.Fatalf("the upstream saw %d requests, want 3", len(seen))
			}
			if seen[0].Chat.offers("read_result") {
				t.Error("read_result is offered before anything is cut")
			}
			for _, request := range seen {
				if body := string(request.Body); !utf8.ValidString(body) || strings.Contains(body, "\ufffd") || strings.Contains(body, `\ufffd`) {
					t.Error("a request has broken characters")
				}
			}
			results := seen[2].Chat.results()
			wantCut(t, text, results[0])
			for _, piece := range results[1:] {
				wantPiece(t, text, piece)
			}
			wantEqual(t, "the client's text", results[4], got.Text)
		})
	}
}

// wantCut checks that cut is the head and the tail of text around a marker with
// the true size.
func wantCut(t *testing.T, text, cut string) {
	t.Helper()
	if len(cut) > capBytes || len(cut) < capBytes-100 {
		t.Errorf("the model got %d bytes, want nearly %d", len(cut), capBytes)
	}
	at := markerPattern.FindStringSubmatchIndex(cut)
	if at == nil {
		t.Fatal("the result has no marker")
	}
	wantEqual(t, "size in the marker", fmt.Sprint(len(text)), cut[at[2]:at[3]])
	head, tail := strings.TrimSuffix(cut[:at[0]], "\n"), cut[at[1]:]
	if _, after, found := strings.Cut(tail, "\n"); found {
		tail = after
	}
	if len(head) < capBytes/4 || !strings.HasPrefix(text, head) {
		t.Errorf("%d bytes before the marker, want a long beginning of the text", len(head))
	}
	if len(tail) < capBytes/8 || !strings.HasSuffix(text, tail) {
		t.Errorf("%d bytes behind the marker, want a long end of the text", len(tail))
	}
}

// wantPiece checks that piece is the range of text that its first line names.
func wantPiece(t *testing.T, text, piece string) {
	t.Helper()
	var from, to, size int
	line := piecePattern.FindString(piece)
	if _, err := fmt.Sscanf(line, "[bytes %d to %d of %d]", &from, &to, &size); err != nil {
		t.Fatalf("the piece begins with %.80q: %v", piece, err)
	}
	wantEqual(t, "size", len(text), size)
	if to-from < 3900 || from < longBytes/2-4 || to > longBytes/2+4100 {
		t.Errorf("the piece is from %d to %d, want about 4000 bytes from the middle", from, to)
	}
	if piece[len(line):] != text[from:to] {
		t.Errorf("the piece is not what stands from %d to %d", from, to)
	}
}
