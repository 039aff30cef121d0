package responses_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// An item of a hosted tool that the model does not get is named in the header, whether a client
// sends it back or the gateway has stored it. Its own provider gets it.
func TestItemsOfHostedToolsThatAnotherProviderDoesNotGet(t *testing.T) {
	NoLeaks(t)
	up := &searcher{}
	native := httptest.NewServer(up)
	t.Cleanup(native.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	for _, kind := range []string{"openai", "anthropic"} {
		t.Run(kind, func(t *testing.T) {
			other := upstreamtest.New(turnpiketest.NewScript(t, strings.Repeat("text Hi.\n\n", 10)), upstreamtest.Options{})
			t.Cleanup(other.Close)
			yaml := Site{Upstream: native.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
			_, line, _ := strings.Cut(yaml, "  - {name: up,")
			line, _, _ = strings.Cut("  - {name: up,"+line, "\n")
			line += "\n"
			second := strings.NewReplacer("{name: up,", "{name: other, kind: "+kind+",", native.URL, other.URL).Replace(line)
			if kind == "anthropic" {
				second = strings.Replace(second, other.URL+"/v1", other.URL, 1)
			}
			g := MustRun(t, strings.Replace(yaml, line, strings.Replace(line, "{name: up,", "{name: up, kind: openai-responses,", 1)+second, 1))
			ask := func(body string, header ...string) Answer {
				a := g.Send("POST", "/v1/responses", strings.NewReader(body), append(header, "Authorization", "Bearer owner-key")...)
				if a.Status != 200 {
					t.Fatalf("%d %s", a.Status, a.Body)
				}
				return a
			}
			const input = `"input":[{"role":"user","content":"x"},` + searched + `,{"role":"user","content":"y"}]`
			first := ask(`{"model":"up/m","input":"x","tools":[{"type":"web_search"}]}`)
			id := first.Responded(t).ID
			for body, want := range map[string]string{
				`{"model":"other/m",` + input + `}`:                                   "input[1]",
				`{"model":"up/m",` + input + `}`:                                      "",
				`{"model":"other/m","input":"y","previous_response_id":"` + id + `"}`: "previous_response_id",
				`{"model":"up/m","input":"y","previous_response_id":"` + id + `"}`:    "",
			} {
				if got := ask(body).Header.Get("Turnpike-Dropped-Params"); got != want {
					t.Errorf("%s: dropped is %q, want %q", body, got, want)
				}
			}
			if got := ask(`{"model":"other/m",`+input+`}`, "turnpike-mcp-disabled", "true").Header.Get("Turnpike-Dropped-Params"); got != "input[1]" {
				t.Errorf("with the loop off: dropped is %q", got)
			}
		})
	}
}

// Counting the tokens of an input names what a run would leave out, or refuses it.
func TestDroppedMembersOfACountedInput(t *testing.T) {
	for runtime, status := range map[string]int{"": 200, "dropped_params: refuse": 400} {
		p := NewParitySite(t, "openai", "text never", runtime)
		body := `{"model":"` + p.Model + `","input":"x","reasoning":{"effort":"low","summary":"auto"},"tools":[{"type":"web_search"}]}`
		a := p.Send("POST", "/v1/responses/input_tokens", strings.NewReader(body))
		if want := map[int]string{200: "reasoning.summary,tools[0]", 400: ""}[status]; a.Status != status || a.Header.Get("Turnpike-Dropped-Params") != want {
			t.Errorf("%q: %d, dropped is %q: %s", runtime, a.Status, a.Header.Get("Turnpike-Dropped-Params"), a.Body)
		}
		if status == 400 {
			if param := a.Fault(t).Error.Param; param == nil || *param != "tools[0]" {
				t.Errorf("%s", a.Body)
			}
		}
	}
}
