package openai

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// The sources of a text are told once, after the text, whether they come before it, after it, or
// again and again. Their number is limited.
func TestCitations(t *testing.T) { // M02
	cite := func(url string) string {
		return fmt.Sprintf(`{"type":"url_citation","url_citation":{"start_index":1,"end_index":2,"url":%q,"title":"T"}}`, url)
	}
	delta := func(members string) string { return `data: {"choices":[{"delta":{` + members + `}}]}` + "\n\n" }
	end := `data: {"choices":[{"delta":{},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	a, b := cite("http://a"), cite("http://b")
	for name, body := range map[string]string{
		"in the same delta":  delta(`"content":"Hi","annotations":[`+a+`,`+b+`]`) + end,
		"before the text":    delta(`"annotations":[`+a+`,`+b+`]`) + delta(`"content":"Hi"`) + end,
		"repeated":           delta(`"content":"H","annotations":[`+a+`]`) + delta(`"content":"i","annotations":[`+a+`,`+b+`]`) + end,
		"of an unknown type": delta(`"content":"Hi","annotations":[{"type":"file_citation"},`+a+`,7,`+b+`]`) + end,
		"one object":         `{"choices":[{"message":{"role":"assistant","content":"Hi","annotations":[` + a + `,` + b + `]},"finish_reason":"stop"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			got := decodeAll(strings.NewReader(body))
			if got.Err != "<nil>" || len(got.Turn.Items) != 1 {
				t.Fatalf("%+v", got)
			}
			want := []item.Citation{{Kind: item.CitesURL, URL: "http://a", Title: "T", Start: 1, End: 2}, {Kind: item.CitesURL, URL: "http://b", Title: "T", Start: 1, End: 2}}
			if it := got.Turn.Items[0]; it.Text() != "Hi" || !slices.Equal(it.Citations, want) {
				t.Errorf("%+v", it)
			}
			providertest.CheckDeltas(t, got)
		})
	}
	if got := decodeAll(strings.NewReader(delta(`"annotations":[`+a+`]`) + end)); len(got.Turn.Items[0].Citations) > 0 || len(got.Deltas) > 0 {
		t.Errorf("without a text: %+v", got)
	}
	var many []string
	for i := range maxCitations + 1 {
		many = append(many, cite(fmt.Sprint("http://", i)))
	}
	if got := decodeAll(strings.NewReader(delta(`"content":"Hi","annotations":[`+strings.Join(many, ",")+`]`) + end)); !strings.Contains(got.Err, "annotations") {
		t.Errorf("too many: %s", got.Err)
	}
	if slices.ContainsFunc(decodeAll(strings.NewReader(delta(`"content":"Hi"`)+end)).Deltas, func(d model.Delta) bool { return d.Kind == model.CitationDelta }) {
		t.Error("a citation of nothing")
	}
}
