package upstreamtest

import (
	_ "embed"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// Requests that have nearly every member a provider takes, each after the name of its rules.
//
//go:embed testdata/valid.txt
var wideRequests string

// Every value of a request is replaced by values of other kinds, and every object gets a member
// more. The numbers are how many of these requests are refused: a rule that is lost lowers one.
func TestEveryMemberOfARequestIsChecked(t *testing.T) {
	want := map[string]int{"anthropic": 799, "bedrock": 570, "chat": 681, "gemini": 378, "responses": 663}
	refused := map[string]int{}
	dialects := map[string]dialect{}
	for _, d := range []dialect{chatDialect{}, newAnthropic(), newResponses(), newGemini().at("/m" + generate), newBedrock()} {
		dialects[d.name()] = d
	}
	header := http.Header{"Anthropic-Version": {"2023-06-01"}, "Content-Type": {"application/json"}}
	for line := range strings.Lines(wideRequests) {
		name, body, _ := strings.Cut(line, " ")
		d := dialects[name]
		if why := inspect(d, header, []byte(body)); why != nil {
			t.Errorf("%s: %s is refused: %s", name, body, why.message)
		}
		v, err := decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		variants(v, func(other any) {
			if inspect(d, header, encode(other)) != nil {
				refused[name]++
			}
		})
	}
	if !maps.Equal(refused, want) {
		t.Errorf("%v, want %v", refused, want)
	}
}

// variants yields values that differ from v in one place.
func variants(v any, yield func(any)) {
	for _, other := range []any{nil, -3, "a b", []any{7}, object{"zzz": 1}} {
		yield(other)
	}
	switch v := v.(type) {
	case object:
		for name, e := range v {
			changed := maps.Clone(v)
			variants(e, func(other any) {
				changed[name] = other
				yield(changed)
			})
			delete(changed, name)
			yield(changed)
		}
		changed := maps.Clone(v)
		for _, more := range []any{1, nil} {
			changed["zzz"] = more
			yield(changed)
		}
	case []any:
		for i, e := range v {
			changed := append([]any{}, v...)
			variants(e, func(other any) {
				changed[i] = other
				yield(changed)
			})
		}
	}
}
