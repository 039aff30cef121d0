package catalog

import (
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/visible"
	"github.com/turnpike-gateway/turnpike/tool"
)

// FuzzUsable: what is offered of a tool hides nothing, is within its bounds, and
// is offered the same once it was examined. // D10
func FuzzUsable(f *testing.F) {
	f.Add("search", "Search\u200b", "Finds \x1b[31mthings\x1b[0m.\U000e0041", []byte(`{"type":"object","properties":{"q\u200b":{"description":"\u202eq"}}}`))
	f.Add("__proto__", "", "", []byte(`{}`))
	f.Add("se\u0430rch\u200d", "", "", []byte(`{"properties":{"a":{},"a\u200b":{}}}`))
	f.Add("a", "", "👩\u200d👧 क\u094d\u200dष", []byte(`{"enum":["\ud83d\ude00\ufe0f"]}`))
	f.Fuzz(func(t *testing.T, name, title, description string, schema []byte) {
		d, err := Usable(tool.Definition{Name: name, Title: title, Description: description, InputSchema: schema})
		var refused *Refusal
		if err != nil {
			if !errors.As(err, &refused) || refused.Reason == "" {
				t.Fatal(err)
			}
			return
		}
		for _, text := range []string{d.Name, d.Title, d.Description} {
			if _, hidden := visible.Text(text); hidden > 0 {
				t.Fatalf("%q hides something", text)
			}
		}
		if utf8.RuneCountInString(d.Name) > MaxName || len(d.Description) > MaxDescription || d.Name != name {
			t.Fatalf("%+v", d)
		}
		again, err := Usable(d)
		if err != nil || again.Title != d.Title || again.Description != d.Description || string(again.InputSchema) != string(d.InputSchema) {
			t.Fatalf("%+v, then %+v, %v", d, again, err)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Fatal(err)
		}
	})
}
