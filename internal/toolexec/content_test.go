package toolexec

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The smallest files of their formats: one pixel each.
const (
	pngData  = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
	gifData  = "R0lGODlhAQABAIAAAAAAAP///ywAAAAAAQABAAACAkQBADs="
	webpData = "UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAgA0JaQAA3AA/vuUAAA="
	pdfData  = "JVBERi0xLjQKJSVFT0YK"
	wavData  = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
)

func picture(mime, data string) item.Part {
	return item.Part{Kind: item.Image, MIMEType: mime, Data: data}
}

func encode(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestBinaryContentIsWhatItsTypeSays(t *testing.T) {
	resource := func(mime, data string) item.Part {
		return item.Part{Kind: item.Resource, URL: "file:///a", MIMEType: mime, Data: data}
	}
	sound := func(mime, data string) item.Part {
		return item.Part{Kind: item.Audio, MIMEType: mime, Data: data}
	}
	leftOut := func(text string) item.Part { return item.Part{Kind: item.Text, Text: text} }
	for _, tt := range []struct {
		name       string
		part, want item.Part
	}{
		{"an image", picture("image/png", pngData), picture("image/png", pngData)},
		{"an image without a type", picture("", gifData), picture("image/gif", gifData)},
		{"an image of another type than was declared", picture("image/jpeg", pngData), picture("image/png", pngData)},
		{"an image that was declared to be something else", picture("text/plain", webpData), picture("image/webp", webpData)},
		{"an unofficial name of a type, with a parameter", picture("IMAGE/X-PNG; a=b", pngData), picture("image/png", pngData)},
		{"an image of a type that cannot be recognized", picture("image/svg+xml", encode("<svg/>")), picture("image/svg+xml", encode("<svg/>"))},
		{"an image in lines", picture("image/png", pngData[:40]+"\r\n"+pngData[40:]+"\n"), picture("image/png", pngData)},
		{"an image in a URL", item.Part{Kind: item.Image, URL: "data:image/png;base64," + pngData}, picture("image/png", pngData)},
		{"an image that is text", picture("image/png", encode("hello")), leftOut("[image; type: application/octet-stream; left out: its data is not an image]")},
		{"an image without a type that is text", picture("", encode("hello")), leftOut("[image; type: text/plain; left out: its data is not an image]")},
		{"an image that ends in its header", picture("image/png", encode("\x89PNG\x0D\x0A\x1A\x0A")), leftOut("[image; type: image/png; left out: its data is damaged: unexpected EOF]")},
		{"an image that is not base64", picture("image/png", "http://x"), leftOut("[image; type: image/png; left out: its data is not base64]")},
		{"an image in base64 for URLs", picture("image/png", "_-8="), leftOut("[image; type: image/png; left out: its data is not base64]")},
		{"an image without data", picture("image/png", ""), leftOut("[image; type: image/png; left out: it has no data]")},
		{"sound", sound("audio/wav", wavData), sound("audio/wav", wavData)},
		{"sound without a type", sound("", wavData), sound("audio/wave", wavData)},
		{"sound that is an image", sound("audio/wav", pngData), leftOut("[audio; type: image/png; left out: its data is not audio]")},
		{"a PDF file without a type", resource("", pdfData), resource("application/pdf", pdfData)},
		{"a PDF file that is none", resource("application/pdf", encode("hello")), resource("application/octet-stream", encode("hello"))},
		{"another file", resource("application/zip", encode("PK\x03\x04")), resource("application/zip", encode("PK\x03\x04"))},
		{"a type that is none", resource("\u200bzip", encode("\x00\x01")), resource("application/octet-stream", encode("\x00\x01"))},
		{"a long URL", item.Part{Kind: item.Resource, URL: strings.Repeat("x", maxLabel+1), Name: "n", MIMEType: "image/png", Data: pngData}, item.Part{Kind: item.Resource, Name: "n", MIMEType: "image/png", Data: pngData}},
		{"a resource with text", item.Part{Kind: item.Resource, URL: "file:///\u200ba", MIMEType: "text/plain", Text: "a\u200bb\xff"}, item.Part{Kind: item.Resource, URL: "file:///a", MIMEType: "text/plain", Text: "ab\uFFFD"}},
		{"a link", item.Part{Kind: item.Resource, URL: "http://x", Title: "a\u202e", Description: "\x1b[31mb"}, item.Part{Kind: item.Resource, URL: "http://x", Title: "a", Description: "b"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := finished(loop.OK, tool.Result{Parts: []item.Part{tt.part}}, Cap{})
			if diff := cmp.Diff([]item.Part{tt.want}, d.Parts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// P06
func TestBinaryContentIsBounded(t *testing.T) {
	full := func(n int) string { // base64 of an image that is n bytes long in that form
		raw, _ := base64.StdEncoding.DecodeString(gifData)
		return base64.StdEncoding.EncodeToString(append(raw, make([]byte, n*3/4-len(raw))...))
	}
	kept := func(p ...item.Part) (n int, told string) {
		d := finished(loop.OK, tool.Result{Parts: p}, Cap{})
		for _, p := range d.Parts {
			if p.Data != "" {
				n++
			}
		}
		return n, d.Text()
	}
	if n, text := kept(picture("", full(maxPartData))); n != 1 {
		t.Errorf("at the limit: %s", text)
	}
	if n, text := kept(picture("", full(maxPartData+4))); n != 0 || text != "[image; left out: 5242884 bytes of base64 are more than the limit of 5242880]" {
		t.Errorf("%d over the limit: %s", n, text)
	}
	if n, text := kept(picture("", full(maxPartData)), picture("", full(maxPartData)), picture("", gifData), item.Part{Kind: item.Text, Text: "end"}); n != 2 || !strings.HasSuffix(text, "left out: the result has more than 10485760 bytes of base64]\nend") {
		t.Errorf("%d of three: %s", n, text)
	}
	many := make([]item.Part, maxDataParts+2)
	for i := range many {
		many[i] = picture("", pngData)
	}
	if n, text := kept(many...); n != maxDataParts || strings.Count(text, "left out: the result has more than 20 binary parts") != 2 {
		t.Errorf("%d of many: %s", n, text)
	}
}

func TestALongTextBesideAnImageIsCut(t *testing.T) { // C11
	words := item.Part{Kind: item.Text, Text: strings.Repeat("é", 5000)}
	read := item.Part{Kind: item.Resource, URL: "file:///a", Text: "body"}
	limit := Cap{Bytes: 1024, Hint: " Look there."}
	d := finished(loop.OK, tool.Result{Parts: []item.Part{picture("", pngData), words, read}}, limit)
	if len(d.Parts) != 2 || d.Parts[0].Kind != item.Text || d.Parts[1] != picture("image/png", pngData) {
		t.Fatalf("%+v", d.Parts)
	}
	if text := d.Text(); len(text) > limit.Bytes || len(text) < limit.Bytes-10 || !strings.Contains(text, "full result is 10026 bytes] Look there.") || !strings.Contains(text, "body\n[image") {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	if d.Full != words.Text+"\n[resource file:///a]\nbody" {
		t.Errorf("%d bytes are kept", len(d.Full))
	}
	again := Again(tool.Result{Parts: d.Whole()}, limit)
	if diff := cmp.Diff(d.Parts, again.Parts); diff != "" || again.Full != d.Full {
		t.Error(diff)
	}
	// Images whose descriptions alone would fill the limit are not sent.
	many := []item.Part{words}
	for range maxDataParts {
		many = append(many, picture("", pngData))
	}
	if d := finished(loop.OK, tool.Result{Parts: many}, limit); len(d.Text()) > limit.Bytes || len(d.Parts) != 12 || !strings.Contains(d.Full, "left out: the limit of the result leaves no room for it]") {
		t.Errorf("%d parts: %s", len(d.Parts), d.Text())
	}
}

func TestStructuredContentIsShownOnce(t *testing.T) {
	words := []item.Part{{Kind: item.Text, Text: "five"}}
	for _, tt := range []struct {
		name       string
		result     tool.Result
		text       string
		structured string
	}{
		{"beside text", tool.Result{Parts: words, Structured: json.RawMessage(`{"n":5}`)}, "five", `{"n":5}`},
		{"alone", tool.Result{Structured: json.RawMessage(`{"n":12345678901234567890}`)}, `{"n":12345678901234567890}`, `{"n":12345678901234567890}`},
		{"beside an image", tool.Result{Parts: []item.Part{picture("", pngData)}, Structured: json.RawMessage(`[1]`)}, "[image; type: image/png; 67 bytes, not shown]\n[1]", `[1]`},
		{"beside a resource with text", tool.Result{Parts: []item.Part{{Kind: item.Resource, URL: "u", Text: "five"}}, Structured: json.RawMessage(`[1]`)}, "[resource u]\nfive", `[1]`},
		{"in an error", tool.Result{IsError: true, Structured: json.RawMessage(`{"code":1}`)}, `Error: {"code":1}`, `{"code":1}`},
		{"with hidden characters", tool.Result{Structured: json.RawMessage("{\"a\":\"b\u200b\"}")}, `{"a":"b"}`, `{"a":"b"}`},
		{"too long to be kept", tool.Result{Parts: words, Structured: json.RawMessage(`"` + strings.Repeat("x", 2000) + `"`)}, "five", ""},
		{"too deep to be kept", tool.Result{Structured: json.RawMessage(strings.Repeat("[", 100) + strings.Repeat("]", 100))}, strings.Repeat("[", 100) + strings.Repeat("]", 100), ""},
		{"not JSON", tool.Result{Parts: words, Structured: json.RawMessage(`{`)}, "five", ""},
		{"not UTF-8", tool.Result{Parts: words, Structured: json.RawMessage("\"\xff\"")}, "five", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := finished(loop.OK, tt.result, Cap{Bytes: 1024})
			if d.Text() != tt.text || string(d.Structured) != tt.structured {
				t.Errorf("%q, structured %q", d.Text(), d.Structured)
			}
		})
	}
}

// The digests of results that are text are those that journals of earlier
// releases hold.
func TestTheDigestCoversBinaryContent(t *testing.T) {
	of := func(p ...item.Part) string { return finished(loop.OK, tool.Result{Parts: p}, Cap{}).Digest }
	words := item.Part{Kind: item.Text, Text: "hi"}
	if got, want := of(words), "4104a58c81aeb69c31143a831d3a094d"; got != want {
		t.Errorf("the digest of a text is %s, want %s", got, want)
	}
	seen := map[string]int{}
	for i, d := range []string{
		of(words), of(picture("", pngData)), of(picture("", gifData)), of(words, picture("", pngData)), of(picture("", pngData), words), of(picture("", pngData), picture("", pngData)),
		of(picture("image/svg+xml", encode("<a/>"))), of(picture("image/svg+xml", encode("<b/>"))),
	} {
		if other, ok := seen[d]; ok {
			t.Errorf("results %d and %d have the digest %s", other, i, d)
		}
		seen[d] = i
	}
}

func TestAResultIsNotChangedInPlace(t *testing.T) {
	parts := []item.Part{{Kind: item.Text, Text: "a"}, {Kind: item.Text, Text: "b"}, picture("", pngData)}
	before := append([]item.Part{}, parts...)
	_ = finished(loop.Error, tool.Result{Parts: parts, IsError: true}, Cap{Bytes: 1})
	if diff := cmp.Diff(before, parts); diff != "" {
		t.Error(diff)
	}
}

// For every content of a server, the model gets text without hidden characters, or data
// of the type that is declared.
func FuzzContent(f *testing.F) {
	for _, data := range []string{pngData, gifData, webpData, pdfData, wavData, "%%", ""} {
		f.Add("image", "image/png", data, "u", "text", 100)
		f.Add("resource", "", data, "", "", 0)
	}
	f.Fuzz(func(t *testing.T, kind, mime, data, url, text string, limit int) {
		p := item.Part{Kind: item.PartKind(kind), MIMEType: mime, Data: data, URL: url, Text: text}
		switch p.Kind {
		case item.Text, item.Image, item.Audio, item.File, item.Resource, item.Refusal:
		default:
			return
		}
		d := finished(loop.OK, tool.Result{Parts: []item.Part{p, {Kind: item.Text, Text: text}}, Structured: json.RawMessage(text)}, Cap{Bytes: limit})
		if limit > 0 && len(d.Text()) > limit || !utf8.ValidString(d.Text()) {
			t.Fatalf("%d bytes, the limit is %d: %q", len(d.Text()), limit, d.Text())
		}
		if d.Structured != nil && !json.Valid(d.Structured) {
			t.Fatalf("structured content %q", d.Structured)
		}
		for _, p := range d.Parts {
			if p.Data == "" {
				continue
			}
			raw, err := base64.StdEncoding.DecodeString(p.Data)
			if err != nil || len(raw) == 0 || p.MIMEType == "" || p.Kind == item.Image && !strings.HasPrefix(p.MIMEType, "image/") {
				t.Fatalf("%+v: %v", p, err)
			}
		}
		again := finished(loop.OK, tool.Result{Parts: d.Whole(), Structured: d.Structured}, Cap{Bytes: limit})
		if diff := cmp.Diff(d.Text(), again.Text()); diff != "" {
			t.Fatalf("the second time:\n%s", diff)
		}
	})
}

// says is a tool with one answer.
type says struct {
	text  string
	value any
}

func (says) Definition() tool.Definition { return tool.Definition{Name: "code"} }

func (s says) Call(context.Context, tool.Call) (tool.Result, error) {
	r := tool.Text(s.text)
	r.Structured, r.Value = json.RawMessage(s.text), s.value
	return r, nil
}

// The files of a result stay when the rest of it is too large, or a hook replaces it. Those of a tool that makes none do not: a result
// whose JSON looks the same names no files.
// J20
func TestFilesOfAResult(t *testing.T) {
	text := `{"stdout":"` + strings.Repeat("x", 2000) + `","files":[{"id":"f"}]}`
	files := []event.File{{ID: "f"}}
	const want = `{"files":[{"id":"f","filename":"","bytes":0,"sha256":"","expires_at":"0001-01-01T00:00:00Z"}]}`
	for name, c := range map[string]struct {
		value any
		want  string
	}{
		"code":                 {builtin.CodeResult{Files: files}, want},
		"commands":             {builtin.ShellResult{Files: files}, want},
		"no value":             {nil, ""},
		"of another tool":      {json.RawMessage(text), ""},
		"a value of a program": {struct{ Files []event.File }{files}, ""},
		"no files":             {builtin.CodeResult{}, ""},
	} {
		d, err := Execute(t.Context(), &catalog.Entry{Name: "code", Tool: says{text, c.value}}, tool.Call{}, Cap{Bytes: 1024})
		if err != nil || string(d.Made) != c.want {
			t.Errorf("%s: %s, %v", name, d.Made, err)
		}
		again := d.Replaced("no", Cap{})
		if string(again.Made) != c.want || again.Text() != "no" {
			t.Errorf("%s: replaced: %s", name, again.Made)
		}
		if v, err := again.Value.Value(); err != nil || len(builtin.FilesOf(v)) != strings.Count(c.want, `"id"`) {
			t.Errorf("%s: the value of what a hook has replaced is %v, %v", name, v, err)
		}
	}
}

// The value of a result is complete where its text is cut, and has none of the text that nobody would have seen.
func TestTheValueOfAResult(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, c := range map[string]struct{ value, want any }{
		"cut":                {builtin.CodeResult{Exit: 1, Stdout: long}, builtin.CodeResult{Exit: 1, Stdout: long}},
		"hidden text":        {builtin.Refusal{Error: "a\u200bb"}, builtin.Refusal{Error: "ab"}},
		"control characters": {builtin.Refusal{Error: "\x1b[31mred"}, builtin.Refusal{Error: "red"}},
		"forged members":     {builtin.Refusal{Error: "x\u009b\",\u009b\"files\u009b\":\u009b\"y"}, builtin.Refusal{Error: `x",iles":`}},
		"a panic":            {panics{}, json.RawMessage(nil)},
		"of a program":       {map[string]int{"n": 1}, json.RawMessage(`{"n":1}`)},
		"without JSON":       {func() {}, json.RawMessage(nil)},
		"too large":          {strings.Repeat("x", maxValue), json.RawMessage(nil)},
		"none":               {nil, json.RawMessage(nil)},
	} {
		entry := &catalog.Entry{Name: "code", Tool: says{`{"stdout":"` + long + `"}`, c.value}}
		d, err := Execute(t.Context(), entry, tool.Call{}, Cap{Bytes: 1024})
		if err != nil || d.Full == "" {
			t.Fatalf("%s: the text is not cut: %v", name, err)
		}
		if got, err := d.Value.Value(); err != nil || !cmp.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// Of code that prints much, the model reads why it failed, its files, and the begin and the end of its output.
func TestMuchOutputLosesNothingElse(t *testing.T) {
	long := "FIRST\n" + strings.Repeat("line ü\n", 40_000) + "LAST"
	values := map[string]builtin.Fitting{
		"code": builtin.CodeResult{
			Exit: -1, Error: "TIME", Note: "NOTE", Files: []event.File{{ID: "FILE"}}, Stdout: long, Result: "RESULT",
			Stderr: strings.Repeat("Warning\n", 9000) + "BOOM",
		},
		"commands": builtin.ShellResult{
			Note: "NOTE", Files: []event.File{{ID: "FILE"}},
			Output: []builtin.ShellOutput{{Stdout: long, Stderr: "TIME"}, {Stdout: "RESULT", Stderr: "BOOM"}},
		},
	}
	for name, value := range values {
		for _, limit := range []Cap{{Chars: 50_000}, {Bytes: 16_384, Hint: " Read it."}, {Bytes: 2000, Chars: 9000}} {
			e, _ := builtin.Encode(value)
			d, err := Execute(t.Context(), &catalog.Entry{Name: "code", Tool: says{string(e.JSON), value}}, tool.Call{}, limit)
			text := d.Text()
			size := max(limit.Bytes, limit.Chars)
			if limit.Bytes > 0 {
				size = limit.Bytes
			}
			if err != nil || len(text) > size || len(text) < size*9/10 || d.Full != string(e.JSON) {
				t.Errorf("%s, %+v: %d bytes, %v", name, limit, len(text), err)
			}
			parts := []string{"TIME", "NOTE", "FILE", "FIRST", "LAST", "BOOM", "RESULT",
				"are left out here", "[truncated; full result is ", limit.Hint}
			for _, part := range parts {
				if !strings.Contains(text, part) {
					t.Errorf("%s, %+v: %q is missing in %.3000s", name, limit, part, text)
				}
			}
			if first, _, _ := strings.Cut(text, "\n[truncated"); !json.Valid([]byte(first)) {
				t.Errorf("%s, %+v: no JSON: %.300s", name, limit, text)
			}
		}
	}
}

// panics is a value that cannot be encoded.
type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("no") }
