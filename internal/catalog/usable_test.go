package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/tool"
)

// What a server's tool may be called. // P07
func TestNamesThatAreRefused(t *testing.T) {
	for name, want := range map[string]string{
		"search":                             "",
		"get.weather/now":                    "",
		"seаrch":                             "", // Cyrillic: it gets another name, see TestNamesThatAModelSees
		strings.Repeat("x", MaxName):         "",
		strings.Repeat("é", MaxName):         "",
		strings.Repeat("x", MaxName+1):       "its name is longer than 128 characters",
		strings.Repeat("x", 10_000):          "its name is longer than 128 characters",
		"sea\u200brch":                       "its name has hidden characters",
		"search\u202e":                       "its name has hidden characters",
		"search\U000e0041":                   "its name has hidden characters",
		"search\ufe0f":                       "its name has hidden characters",
		"\x1b[31msearch":                     "its name has hidden characters",
		"sear\x00ch":                         "its name has hidden characters",
		"__proto__":                          "its name means something else to programs in JavaScript",
		"__proto__" + strings.Repeat("_", 3): "",
	} {
		_, err := Usable(tool.Definition{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)})
		if got := fmt.Sprint(err); want == "" && err != nil || want != "" && got != want {
			t.Errorf("%+.40q: %v, want %q", name, err, want)
		}
	}
}

// What is offered hides nothing, in whatever field it came. // P07
func TestADefinitionHidesNothing(t *testing.T) {
	const hide = "\u200b\u202e\U000e0041\ufe0f\x1b]8;;http://evil.example\x1b\\"
	in := tool.Definition{
		Name: "t", Title: "a" + hide + "b", Description: "c" + hide + "d",
		InputSchema: json.RawMessage(`{"type":"object", "title":"x\u200b\u001b[31my", "properties":{"p\u2066":{"description":"` + "\u200b" + `z","enum":["u\u00ad"],"default":"u\u00ad"}}}`),
	}
	got, err := Usable(in)
	const schema = `{"type":"object", "title":"xy", "properties":{"p":{"description":"z","enum":["u"],"default":"u"}}}`
	if err != nil || got.Title != "ab" || got.Description != "cd" || string(got.InputSchema) != schema {
		t.Errorf("%+v, %v", got, err)
	}
	if again, err := Usable(got); err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
		t.Errorf("once more: %+v, %v", again, err)
	}
	var refused *Refusal
	in.InputSchema = json.RawMessage(`{"properties":{"a":{},"a\u200b":{}}}`)
	if _, err := Usable(in); !errors.As(err, &refused) || refused.Code != "mcp_tool_invalid_schema" {
		t.Errorf("two names that look the same: %v", err)
	}
}

// A description is cut at its limit, a schema is refused beyond it. // P06
func TestADefinitionIsAsLargeAsItsLimits(t *testing.T) {
	describe := func(text string) string {
		d, err := Usable(tool.Definition{Name: "t", Description: text, InputSchema: json.RawMessage(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		return d.Description
	}
	if fits := strings.Repeat("d", MaxDescription); describe(fits) != fits {
		t.Error("a description at the limit was cut")
	}
	for _, over := range []string{strings.Repeat("d", MaxDescription+1), strings.Repeat("é", MaxDescription)} {
		if got := describe(over); len(got) > MaxDescription || len(got) < MaxDescription-3 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes ending in %q", len(got), got[len(got)-9:])
		}
	}
	for n, fits := range map[int]bool{schema.MaxBytes: true, schema.MaxBytes + 1: false, 5 << 20: false} {
		const before, after = `{"description":"`, `"}`
		raw := before + strings.Repeat("x", n-len(before)-len(after)) + after
		if _, err := Usable(tool.Definition{Name: "t", InputSchema: json.RawMessage(raw)}); (err == nil) != fits {
			t.Errorf("a schema of %d bytes: %v", n, err)
		}
	}
	for levels, fits := range map[int]bool{schema.MaxDepth: true, schema.MaxDepth + 1: false, 100_000: false} {
		raw := strings.Repeat(`{"not":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
		if _, err := Usable(tool.Definition{Name: "t", InputSchema: json.RawMessage(raw)}); (err == nil) != fits {
			t.Errorf("a schema of %d levels: %v", levels, err)
		}
	}
}

// A run has so many tools, those of the first servers first. // P06
func TestARunHasSoManyTools(t *testing.T) {
	several := func(prefix string, n int) (all []tool.Tool) {
		for i := range n {
			all = append(all, named(fmt.Sprintf("%s%03d", prefix, i)))
		}
		return all
	}
	c, log := logged(t)
	set := mustFind(t, c, Server{Name: "z", Source: has(several("z", MaxTools-1)...)}, Server{Name: "a", Source: has(named("a"))})
	if n := len(set.Offered()); n != MaxTools || strings.Contains(log(), "mcp_too_many_tools") {
		t.Errorf("at the limit: %d tools\n%s", n, log())
	}
	c, log = logged(t)
	set = mustFind(t, c, Server{Name: "z", Source: has(several("z", MaxTools-1)...)}, Server{Name: "a", Source: has(several("a", 2)...)})
	if n := len(set.Offered()); n != MaxTools || set.Lookup("a000") == nil || set.Lookup("a001") != nil ||
		!strings.Contains(log(), "mcp_too_many_tools") || !strings.Contains(log(), "server=a left_out=1") {
		t.Errorf("one over: %d tools\n%s", n, log())
	}
}

// The definitions of a run are so large together, and a small one behind a
// large one finds its place. // P06
func TestTheDefinitionsOfARunAreBoundedTogether(t *testing.T) {
	filled := func(name string, n int) tool.Tool {
		const before, after = `{"description":"`, `"}`
		return schemed(name, before+strings.Repeat("x", n-len(name)-len(before)-len(after))+after)
	}
	var tools []tool.Tool
	const each = 64 << 10
	for i := range MaxBytes/each - 1 {
		tools = append(tools, filled(fmt.Sprintf("t%02d", i), each))
	}
	for over, found := range map[int]string{0: "last", 1: "small"} {
		all := append(slices.Clone(tools), filled("half", each/2), filled("last", each/2+over), filled("small", 30))
		c, log := logged(t)
		set := mustFind(t, c, Server{Name: "s", Source: has(all...)})
		if n := len(set.Offered()); n != len(tools)+2 || set.Lookup(found) == nil || !strings.Contains(log(), "mcp_too_many_tools") {
			t.Errorf("%d over: %d tools, %s among them: %t\n%s", over, n, found, set.Lookup(found) != nil, log())
		}
	}
}

// A server that lists nothing but bad tools does not fill the log.
func TestTheLogNamesAFewOfManyBadTools(t *testing.T) {
	var tools []tool.Tool
	for i := range 500 {
		tools = append(tools, schemed(fmt.Sprintf("t%d", i), `7`))
	}
	c, log := logged(t)
	mustFind(t, c, Server{Name: "s", Source: has(tools...)})
	if n := strings.Count(log(), "\n"); n > maxReported+3 || !strings.Contains(log(), "more=490") {
		t.Errorf("%d lines:\n%s", n, log())
	}
}
