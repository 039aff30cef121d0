package chat_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
)

// account is what an exchange with the Responses API says, as lines that can be compared: its
// events without repeats, or its items, and its end.
type account []string

// accountOf reads an answer of the API, recorded or the gateway's.
func accountOf(t *testing.T, status int, body []byte) (a account) {
	t.Helper()
	if status != http.StatusOK {
		var e WireError
		if err := json.Unmarshal(body, &e); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		return account{fmt.Sprintf("error %d %s %s %s", status, e.Error.Type, orNone(e.Error.Param), orNone(e.Error.Code))}
	}
	end := body
	for line := range strings.Lines(string(body)) {
		data, isEvent := strings.CutPrefix(line, "data: {")
		if !isEvent {
			continue
		}
		var e struct {
			Type     string
			Item     struct{ Type string }
			Response json.RawMessage
		}
		if err := json.Unmarshal([]byte("{"+data), &e); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		if e.Response != nil {
			end = e.Response
		}
		said := strings.TrimSpace("event " + strings.TrimPrefix(e.Type, "response.") + " " + e.Item.Type)
		if len(a) == 0 || a[len(a)-1] != said {
			a = append(a, said)
		}
	}
	var o RespObject
	var members map[string]json.RawMessage
	if err := json.Unmarshal(end, &o); err != nil || json.Unmarshal(end, &members) != nil {
		t.Fatalf("%v: %s", err, end)
	}
	for _, it := range o.Output {
		a = append(a, strings.TrimSpace("item "+it.Type+" "+it.Name))
		for _, text := range []string{it.Arguments, textOfItem(it)} {
			if text != "" {
				a = append(a, "says "+text)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		a = append(a, "member "+name)
	}
	return append(a, fmt.Sprintf("ends %s, details %v, error %v", o.Status, o.Incomplete, o.Error))
}

func orNone(s *string) string {
	if s == nil {
		return "none"
	}
	return *s
}

// accepted is a difference between what a client got of the API and what it gets of the gateway.
type accepted struct {
	in     string // the recordings, a regular expression of their names
	lines  string // a regular expression: "-" and a line of the recording, or "+" and one of the gateway
	reason string
}

const (
	hidden    = "azure-o4-mini|complex-object"
	rawThinks = "raw-cot|deepseek-v4-flash-streams"
	connector = "mcp-server-tool-with-connector"

	endsLate = "the provider ends its reasoning after the message; here a message that is the last item ends with the model call, which says whether it is complete"
)

func acceptedDifferences() []accepted {
	return []accepted{
		{hidden, `- (event output_item\.(added|done)|item) reasoning`, "reasoning of which nothing can be read, and that the request does not include, has no item; the gateway keeps it for the next request"},
		{rawThinks, `- event reasoning_text\.(delta|done)`, "raw reasoning is shown as a summary, as that of providers of other dialects"},
		{rawThinks, `\+ event reasoning_summary_(part|text)\..*`, "raw reasoning is shown as a summary, as that of providers of other dialects"},
		{rawThinks, `[-+] event content_part\.(added|done)`, "parts of raw reasoning are not parts of a content here"},
		{"raw-cot", `[-+] event (reasoning_summary_(part|text)\.done|output_item\.done .*)`, endsLate},
		{connector, `- .*`, "the request names a connector of the provider, which the gateway cannot call"},
		{connector, `\+ error 400 invalid_request_error tools\[0\]\.connector_id unsupported_parameter`, "the request names a connector of the provider, which the gateway cannot call"},
		{"appropriate-auth-error", `- error 401 invalid_request_error none invalid_api_key`, "the key that the provider refused is the gateway's, not that of its client"},
		{"appropriate-auth-error", `\+ error 502 upstream_error none upstream_credential_refused`, "the key that the provider refused is the gateway's, not that of its client"},
		{"", `- member (billing|content_filters|moderation|tool_usage)`, "what the provider adds about its own services"},
		{"", `- member prompt_cache_retention`, "a setting of the provider's cache"},
		{"", `- member user`, "it is deprecated, and there only if the request has it"},
		{"raw-cot", `- member output_text`, "the clients make it of the output"},
		{"", `\+ member .*`, "the recording is older than the member, or of a provider that leaves it out"},
	}
}

// without returns the account without the accepted lines, and notes which differences it had. A
// line that both accounts have differs in its place only, which is for differences of both sides.
func (a account) without(side, recording string, other account, seen map[accepted]bool) (left account) {
	for _, line := range a {
		drop := false
		for _, d := range acceptedDifferences() {
			ofBoth := strings.HasPrefix(d.lines, "[-+]")
			if (ofBoth || !slices.Contains(other, line)) && regexp.MustCompile(d.in).MatchString(recording) && regexp.MustCompile("^"+d.lines+"$").MatchString(side+" "+line) {
				drop, seen[d] = true, true
			}
		}
		if repeats := strings.HasPrefix(line, "event ") && len(left) > 0 && left[len(left)-1] == line; !drop && !repeats {
			left = append(left, line)
		}
	}
	return left
}

// askedAgain is the recorded request, for the model of the gateway.
func askedAgain(t *testing.T, r providertest.Recording) string {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.Request.Body, &members); err != nil {
		t.Fatal(err)
	}
	members["model"] = json.RawMessage(`"m"`)
	body, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// Recorded exchanges with the Responses API are played again: the provider answers as recorded,
// and the client asks the gateway as it asked the API, with the agent loop on. It gets the same
// items and texts, the same families of events in the same order, the same members, and the same
// end or error, but for the differences that are accepted. // O06
func TestRecordedExchangesArePlayedAgain(t *testing.T) {
	NoLeaks(t)
	seen := map[accepted]bool{}
	all := providertest.Recordings(t, "openai-responses")
	for _, r := range all {
		t.Run(r.Name, func(t *testing.T) {
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
				for name, value := range r.Response.Headers {
					w.Header().Set(name, value)
				}
				w.WriteHeader(r.Response.Status)
				_, _ = w.Write(r.Body)
			})
			g := MustRun(t, strings.Replace(Site{Upstream: up.URL}.Yaml(), "{name: up,", "{name: up, kind: openai-responses,", 1))
			got := g.Send("POST", "/v1/responses", strings.NewReader(askedAgain(t, r)))
			if got.Status == http.StatusOK && r.Streamed {
				WantNumbered(t, got.Events(t))
			}
			recorded, ours := accountOf(t, r.Response.Status, r.Body), accountOf(t, got.Status, got.Body)
			if d := cmp.Diff(recorded.without("-", r.Name, ours, seen), ours.without("+", r.Name, recorded, seen)); d != "" {
				t.Errorf("recorded (-), of the gateway (+):\n%s", d)
			}
		})
	}
	for _, d := range acceptedDifferences() {
		if !seen[d] && len(all) > 0 {
			t.Errorf("%s in %q: no recording differs so any more: remove it", d.lines, d.in)
		}
	}
}

// textOfItem are the texts of a message.
func textOfItem(it RespItem) (text string) {
	for _, p := range it.Content {
		if it.Type == "message" {
			text += p.Text + p.Refusal
		}
	}
	return text
}
