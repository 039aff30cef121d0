package toolexec

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// blocked returns the result of a call that the outbound policy refused.
type blocked struct{}

func (blocked) Error() string             { return "blocked 10.0.0.1" }
func (blocked) Blocked() (string, string) { return "private", "10.0.0.1" }

func TestWhatTheModelReadsOfAnExecution(t *testing.T) {
	parts := func(p ...item.Part) tool.Result { return tool.Result{Parts: p} }
	for _, tt := range []struct {
		name    string
		call    func() (tool.Result, error)
		outcome loop.Outcome
		text    string
	}{
		{"text", func() (tool.Result, error) { return tool.Text("hi"), nil }, loop.OK, "hi"},
		{"nothing", func() (tool.Result, error) { return tool.Result{}, nil }, loop.OK, ""},
		{"several texts", func() (tool.Result, error) {
			return parts(item.Part{Kind: item.Text, Text: "a"}, item.Part{Kind: item.Text, Text: "b"}), nil
		}, loop.OK, "a\nb"},
		{"what a text cannot carry is named", func() (tool.Result, error) {
			return parts(item.Part{Kind: item.Image, MIMEType: "image/png", Data: pngData}), nil
		}, loop.OK, "[image; type: image/png; 67 bytes, not shown]"},
		{"an error beside an image", func() (tool.Result, error) {
			return tool.Result{Parts: []item.Part{{Kind: item.Image, Data: pngData}}, IsError: true}, nil
		}, loop.Error, "Error: the tool failed\n[image; type: image/png; 67 bytes, not shown]"},
		{"an error that the tool reports", func() (tool.Result, error) { return tool.Error("no luck"), nil }, loop.Error, "Error: no luck"}, // D17
		{"a built-in tool that lacks a setting", func() (tool.Result, error) {
			return builtin.Refusal{Error: "EXA_API_KEY is <not> set", Setting: "EXA_API_KEY"}.Result(), nil
		}, loop.Error, `{"error":"EXA_API_KEY is <not> set","setting":"EXA_API_KEY"}`}, // C22
		{"an error without a word", func() (tool.Result, error) { return tool.Result{IsError: true}, nil }, loop.Error, "Error: the tool reported an error and said no more"},
		{"a failure of the transport", func() (tool.Result, error) { return tool.Result{}, errors.New("no route") }, loop.Unknown, `{"error":"outcome_unknown: tool add: no route; it may have been carried out"}`}, // C09
		{"a failure before the call left", func() (tool.Result, error) { return tool.Result{}, fmt.Errorf("%w: no route", tool.ErrNotSent) }, loop.NotRun, `{"error":"tool add: not sent: no route"}`},
		{"a panic", func() (tool.Result, error) { panic("oops") }, loop.Unknown, `{"error":"outcome_unknown: tool add: panic: oops; it may have been carried out"}`},
		{"text that nobody would see", func() (tool.Result, error) { return tool.Text("a\u200b\x1b[31mb\U000e0041"), nil }, loop.OK, "ab"},
		{"an error that nobody would see", func() (tool.Result, error) { return tool.Error("no\u202e luck"), nil }, loop.Error, "Error: no luck"},
		{"a failure with escapes", func() (tool.Result, error) { return tool.Result{}, errors.New("no\u200b route") }, loop.Unknown, `{"error":"outcome_unknown: tool add: no route; it may have been carried out"}`},
		{"bytes that are no text", func() (tool.Result, error) { return tool.Text("a\xffb"), nil }, loop.OK, "a\uFFFDb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := newSet(t, func(context.Context, tool.Call) (tool.Result, error) { return tt.call() })
			d, err := Execute(t.Context(), set.Lookup("add"), tool.Call{}, Cap{})
			if err != nil || d.Outcome != tt.outcome || d.Text() != tt.text || d.Digest == "" {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

func TestWhatEndsTheRun(t *testing.T) {
	set := newSet(t, func(ctx context.Context, _ tool.Call) (tool.Result, error) { return tool.Result{}, ctx.Err() })
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Execute(gone, set.Lookup("add"), tool.Call{}, Cap{}); !errors.Is(err, context.Canceled) {
		t.Errorf("after the caller left: %v", err)
	}
	set = newSet(t, func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{}, fmt.Errorf("tool add: %w", blocked{})
	})
	var fatal tool.Blocked
	if _, err := Execute(gone, set.Lookup("add"), tool.Call{}, Cap{}); !errors.As(err, &fatal) { // K04, also when the caller has left
		t.Errorf("a refusal: %v", err)
	}
	// A result that arrived after the caller left is still a result.
	set = newSet(t, func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("done"), nil })
	if d, err := Execute(gone, set.Lookup("add"), tool.Call{}, Cap{}); err != nil || d.Text() != "done" {
		t.Errorf("%+v, %v", d, err)
	}
}

// What is recorded of a call without an answer follows from its class and from
// whether any of its attempts may have left.
func TestTheOutcomeOfACallWithoutAnAnswer(t *testing.T) { // D19
	lost := errors.New("connection reset")
	unsent := fmt.Errorf("%w: connection refused", tool.ErrNotSent)
	refused := fmt.Errorf("%w: %w", tool.ErrNotSent, blocked{})
	for _, tt := range []struct {
		name    string
		class   tool.Class
		attempt int
		err     error
		outcome loop.Outcome
		text    string
	}{
		{"once, lost", tool.Once, 1, lost, loop.Unknown, "outcome_unknown: tool add: connection reset; it may have been carried out"},
		{"keyed, lost", tool.Keyed, 1, lost, loop.Unknown, "outcome_unknown: tool add: connection reset; it may have been carried out"},
		{"no class, lost", "", 1, lost, loop.Unknown, "outcome_unknown: tool add: connection reset; it may have been carried out"},
		{"read, lost", tool.Read, 1, lost, loop.Error, "tool add: connection reset"},
		{"once, not sent", tool.Once, 1, unsent, loop.NotRun, "tool add: not sent: connection refused"},
		{"read, not sent", tool.Read, 1, unsent, loop.NotRun, "tool add: not sent: connection refused"},
		{"keyed, not sent after an attempt that may have left", tool.Keyed, 2, unsent, loop.Unknown,
			"outcome_unknown: tool add: its answer was lost, and it could not be sent again: connection refused; it may have been carried out"},
		{"read, not sent after an attempt that may have left", tool.Read, 2, unsent, loop.Error, "tool add: its answer was lost, and it could not be sent again: connection refused"},
		{"once, refused by the policy before it left", tool.Once, 1, refused, loop.NotRun, "tool add: not sent: the outbound policy refused an address of its server"},
		{"once, refused by the policy after it left", tool.Once, 1, blocked{}, loop.Unknown,
			"outcome_unknown: tool add: the outbound policy refused an address of its server; it may have been carried out"},
		{"read, refused by the policy after it left", tool.Read, 1, blocked{}, loop.Error, "tool add: the outbound policy refused an address of its server"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set := newSet(t, func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, tt.err })
			d, err := Execute(t.Context(), set.Lookup("add"), tool.Call{Class: tt.class, Attempt: tt.attempt}, Cap{})
			var fatal tool.Blocked
			if ends := errors.As(tt.err, &fatal); d.Outcome != tt.outcome || d.Text() != `{"error":"`+tt.text+`"}` || (err != nil) != ends {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

func TestTheDigestOfAResultTellsOutcomeAndTextApart(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range []tool.Result{tool.Text("a"), tool.Text("b"), tool.Error("a")} {
		set := newSet(t, func(context.Context, tool.Call) (tool.Result, error) { return r, nil })
		d, err := Execute(t.Context(), set.Lookup("add"), tool.Call{}, Cap{})
		if err != nil || seen[d.Digest] {
			t.Errorf("%+v, %v", d, err)
		}
		seen[d.Digest] = true
	}
}

func TestALongResultIsCut(t *testing.T) { // C11
	set := newSet(t, func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Text(strings.Repeat("é", 5<<20)), nil
	})
	d, err := Execute(t.Context(), set.Lookup("add"), tool.Call{}, Cap{Bytes: 64 << 10, Hint: " Look there."})
	if err != nil || len(d.Text()) > 64<<10 || len(d.Text()) < 63<<10 || !strings.Contains(d.Text(), "…[truncated; full result is 10485760 bytes] Look there.\n") {
		t.Errorf("%d bytes, %v", len(d.Text()), err)
	}
	if d.Full != strings.Repeat("é", 5<<20) { // P16
		t.Errorf("%d bytes are kept", len(d.Full))
	}
	if d, err = Execute(t.Context(), set.Lookup("add"), tool.Call{}, Cap{}); err != nil || d.Full != "" || len(d.Text()) != 10<<20 {
		t.Errorf("without a limit: %d bytes, %d are kept, %v", len(d.Text()), len(d.Full), err)
	}
}

func TestTruncate(t *testing.T) {
	const marker = "\n…[truncated; full result is 400 bytes]\n"
	long := strings.Repeat("h", 200) + strings.Repeat("t", 200)
	for _, tt := range []struct {
		name  string
		text  string
		limit int
		want  string
	}{
		{"no limit", long, 0, long},
		{"a negative limit is none", long, -1, long},
		{"at the limit", long, 400, long},
		{"three quarters of head and one of tail", long, 100, strings.Repeat("h", 44) + marker + strings.Repeat("t", 14)},
		{"no room for the marker", long, 10, "hhhhhhhhhh"},
		{"characters stay whole", strings.Repeat("😀", 3), 7, "😀"},
		{"no room for one character", "😀", 3, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Truncate(tt.text, Cap{Bytes: tt.limit}); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A cut text is within the limit, valid if the text was valid, and its marker has the
// size of the whole. // C11
func FuzzTruncate(f *testing.F) {
	f.Add(strings.Repeat("é", 100), 90, "")
	f.Add(strings.Repeat("😀a", 100), 61, " Read the rest.")
	f.Add("\x80\x80\x80\x80", 2, "")
	f.Fuzz(func(t *testing.T, text string, limit int, hint string) {
		if !utf8.ValidString(hint) {
			return // hints are ours
		}
		got := Truncate(text, Cap{Bytes: limit, Hint: hint})
		switch {
		case limit <= 0 || len(text) <= limit:
			if got != text {
				t.Fatalf("%q was changed to %q", text, got)
			}
			return
		case len(got) > limit:
			t.Fatalf("%d bytes, the limit is %d", len(got), limit)
		case utf8.ValidString(text) && !utf8.ValidString(got):
			t.Fatalf("%q is cut to %q", text, got)
		}
		marker := fmt.Sprintf("\n…[truncated; full result is %d bytes]%s\n", len(text), hint)
		head, tail, ok := strings.Cut(got, marker)
		if limit > len(marker) && !ok {
			t.Fatalf("no marker in %q", got)
		}
		if ok && (!strings.HasPrefix(text, head) || !strings.HasSuffix(text, tail)) {
			t.Fatalf("%q and %q are not the ends of %q", head, tail, text)
		}
	})
}

// Of a result with too many characters the first ones are kept, with a note of their number. // C12
func TestAResultIsCutByItsCharacters(t *testing.T) {
	long := strings.Repeat("é", 60)
	if got := Truncate(long, Cap{Chars: 50, Hint: " More."}); got != strings.Repeat("é", 50)+"\n\n[Truncated: 60 chars total] More." {
		t.Errorf("got %q", got)
	}
	if got := Truncate(long, Cap{Chars: 60}); got != long {
		t.Errorf("at the limit: %q", got)
	}
	d := Done{Parts: []item.Part{{Kind: item.Text, Text: long}, {Kind: item.Image, Data: "AA==", MIMEType: "image/png"}}}
	d.truncate(Cap{Chars: 50}, nil)
	if len(d.Parts) != 2 || d.Parts[1].Data == "" || !strings.HasSuffix(d.Parts[0].Text, "[Truncated: 60 chars total]") || d.Full != long {
		t.Errorf("a result with a picture: %+v", d)
	}
}
