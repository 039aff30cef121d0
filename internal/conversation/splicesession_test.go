package conversation

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/item"
)

// transcriptOf reads a transcript: u: of the user, s: of the system, h: of a hook, a: of the model, a call in its turn
// (c:id), a result (r:id=text). A turn of the model is one line.
func transcriptOf(text string) (out []item.Item) {
	turn := 0
	for line := range strings.Lines(text) {
		turn++
		for word := range strings.FieldsSeq(line) {
			kind, rest, _ := strings.Cut(word, ":")
			switch kind {
			case "u", "s", "h":
				it := item.NewText(map[string]item.Role{"u": item.User, "s": item.System, "h": item.User}[kind], rest)
				if kind != "h" {
					it.Native.Dialect = "d"
				}
				out = append(out, it)
			case "a":
				it := item.NewText(item.Assistant, strings.ReplaceAll(rest, "|", roundSeparator))
				it.Turn = turn
				out = append(out, it)
			case "c":
				it := item.NewCall(rest, "tool", "{}")
				it.Turn = turn
				out = append(out, it)
			case "r":
				id, said, _ := strings.Cut(rest, "=")
				out = append(out, item.NewResult(id, said, false))
			}
		}
	}
	return out
}

func textOfItems(items []item.Item) string {
	var b strings.Builder
	for _, it := range items {
		kind := map[item.Kind]string{item.ToolCall: "c:" + it.CallID, item.ToolResult: "r:" + it.CallID + "=" + it.Text()}[it.Kind]
		if it.Kind == item.Message {
			kind = map[item.Role]string{item.User: "u", item.System: "s", item.Assistant: "a"}[it.Role]
			if it.Role == item.User && it.Native.Dialect == "" {
				kind = "h"
			}
			kind += ":" + strings.ReplaceAll(it.Text(), roundSeparator, "|")
		}
		fmt.Fprintf(&b, "%s ", kind)
	}
	return strings.TrimSpace(b.String())
}

// The stored items up to the last message that both have are kept, with the calls and results in between. After the
// first difference the request counts. // J04
func TestSpliceSession(t *testing.T) {
	const stored = "s:sys u:one\na:look c:1\nr:1=x\na:done\nu:two\na:fine"
	for name, c := range map[string]struct{ stored, asked, kept, fresh string }{
		"the client resends what it saw":        {stored, "s:sys u:one\na:done\nu:two\na:fine\nu:three", "s:sys u:one a:look c:1 r:1=x a:done u:two a:fine", "u:three"},
		"a stream has the texts of all rounds":  {stored, "s:sys u:one\na:look|done\nu:two\na:fine\nu:three", "s:sys u:one a:look c:1 r:1=x a:done u:two a:fine", "u:three"},
		"it is the first request":               {"", "u:one", "", "u:one"},
		"a repeated request begins anew":        {stored, "s:sys u:one\na:done\nu:two", "s:sys u:one a:look c:1 r:1=x a:done", "u:two"},
		"the repeated request is the first":     {stored, "s:sys u:one", "s:sys", "u:one"},
		"an answer was edited":                  {stored, "s:sys u:one\na:other\nu:two\na:fine\nu:three", "s:sys u:one", "a:other u:two a:fine u:three"},
		"a message was edited":                  {stored, "s:sys u:one\na:done\nu:2\na:fine\nu:three", "s:sys u:one a:look c:1 r:1=x a:done", "u:2 a:fine u:three"},
		"the system message was edited":         {stored, "s:new u:one\na:done\nu:two", "", "s:new u:one a:done u:two"},
		"an answer is missing":                  {stored, "s:sys u:one u:two\na:fine\nu:three", "s:sys u:one", "u:two a:fine u:three"},
		"messages are missing":                  {stored, "s:sys u:two\na:fine\nu:three", "s:sys", "u:two a:fine u:three"},
		"only the new message comes":            {stored, "u:three", "", "u:three"},
		"a hook has said something":             {"u:one h:hint\na:done", "u:one\na:done\nu:two", "u:one h:hint a:done", "u:two"},
		"two rounds, and the same text in both": {"u:one\na:ok c:1\nr:1=x\na:ok", "u:one\na:ok\nu:two", "u:one a:ok c:1 r:1=x a:ok", "u:two"},

		"the client has called a tool":             {"u:one\nc:1\nr:1=x\na:t c:2", "u:one\na:t c:2\nr:2=y", "u:one c:1 r:1=x a:t c:2", "r:2=y"},
		"the client's calls and results are old":   {"u:one\nc:1\nr:1=x\nc:2\nr:2=y\na:done", "u:one\nc:2\nr:2=y\na:done\nu:two", "u:one c:1 r:1=x c:2 r:2=y a:done", "u:two"},
		"the results come in another order":        {"u:one\nc:1 c:2\nr:1=x r:2=y\na:done", "u:one\nc:1 c:2\nr:2=y r:1=x\na:done\nu:two", "u:one c:1 c:2 r:1=x r:2=y a:done", "u:two"},
		"a result was edited":                      {"u:one\nc:1 c:2\nr:1=x r:2=y\na:done", "u:one\nc:1 c:2\nr:1=x r:2=new\na:done\nu:two", "u:one c:1 c:2 r:1=x", "r:2=new a:done u:two"},
		"one turn has calls of both":               {"u:one\nc:1 c:2\nr:1=x r:2=y\na:done", "u:one\nc:2\nr:2=y\na:done\nu:two", "u:one c:1 c:2 r:1=x r:2=y a:done", "u:two"},
		"results are sent again":                   {"u:one\nc:1 c:2\nr:1=x r:2=y\na:done", "u:one\nc:2\nr:2=y", "u:one c:1 c:2 r:1=x", "r:2=y"},
		"a call has other arguments or another id": {"u:one\nc:1\nr:1=x\na:done", "u:one\nc:9\nr:9=x\na:done\nu:two", "u:one", "c:9 r:9=x a:done u:two"},
		"ours":                  {"u:one\nc:p1\nr:p1=x\na:done", "u:one\nc:ours\nr:ours=x\na:done\nu:two", "u:one c:p1 r:p1=x a:done", "u:two"},
		"two calls have one id": {"u:one\nc:1 c:1\nr:1=x r:1=y\na:done", "u:one\nc:1 c:1\nr:1=x r:1=y\na:done\nu:two", "u:one c:1 c:1 r:1=x r:1=y a:done", "u:two"},
	} {
		t.Run(name, func(t *testing.T) {
			s := spliceSession(transcriptOf(c.stored), transcriptOf(c.asked), map[string]string{"ours": "p1"})
			if kept, fresh := textOfItems(s.kept), textOfItems(s.fresh); kept != c.kept || fresh != c.fresh {
				t.Errorf("kept  %s\nwant  %s\nfresh %s\nwant  %s", kept, c.kept, fresh, c.fresh)
			}
		})
	}
}
