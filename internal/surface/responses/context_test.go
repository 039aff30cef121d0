package responses_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A provider that shortens prompts itself gets what the client asks of it, and its compaction comes back to it
// with the next request of the conversation, byte for byte. // P50
func TestCompactionsOfTheProviderStayInTheConversation(t *testing.T) {
	NoLeaks(t)
	const (
		sealed = `{"id":"cmp_1","type":"compaction","encrypted_content":"gAAAA=="}`
		claude = `{"type":"compaction","content":"They want <tea>."}`
	)
	for name, tt := range map[string]struct {
		kind, asked string
		answer      string // the first one; the others have no compaction
		later       string
		sent        string // in the body of each request
		beta        string
		back        string // in the body of the second request
		shown       bool   // the client sees the compaction
	}{
		"openai-responses": {
			kind: "openai-responses", asked: `"context_management":[{"type":"compaction","compact_threshold":2000}]`,
			answer: `{"id":"resp_9","object":"response","status":"completed","model":"m","output":[` + sealed + `,{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Tea.","annotations":[]}]}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}`,
			later:  `{"id":"resp_10","object":"response","status":"completed","model":"m","output":[{"id":"msg_2","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Green.","annotations":[]}]}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}`,
			sent:   `"context_management":[{"type":"compaction","compact_threshold":2000}]`, back: sealed, shown: true,
		},
		"openai-responses, truncation": {
			kind: "openai-responses", asked: `"truncation":"auto"`,
			answer: `{"id":"resp_9","object":"response","status":"completed","model":"m","output":[{"id":"msg_1","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Tea.","annotations":[]}]}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}`,
			later:  `{"id":"resp_10","object":"response","status":"completed","model":"m","output":[{"id":"msg_2","type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Green.","annotations":[]}]}],"usage":{"input_tokens":9,"output_tokens":2,"total_tokens":11}}`,
			sent:   `"truncation":"auto"`, back: `"text":"Tea."`,
		},
		"anthropic": {
			kind: "anthropic", asked: `"context_management":{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":60000}}]}`,
			answer: `{"type":"message","id":"msg_1","model":"m","content":[` + claude + `,{"type":"text","text":"Tea."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`,
			later:  `{"type":"message","id":"msg_2","model":"m","content":[{"type":"text","text":"Green."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`,
			sent:   `"context_management":{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":60000}}]}`,
			beta:   "compact-2026-01-12", back: claude,
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
				w.Header().Set("Content-Type", "application/json")
				answer := tt.later
				if r.Number == 0 {
					answer = tt.answer
				}
				_, _ = w.Write([]byte(answer))
			})
			g := MustRun(t, strings.Replace(Site{Upstream: up.URL}.Yaml(), "{name: up,", "{name: up, kind: "+tt.kind+",", 1))
			var got struct {
				ID         string
				Truncation string
				Output     []json.RawMessage
			}
			ask := func(more string) {
				t.Helper()
				a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m",`+tt.asked+`,`+more+`}`))
				if a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "" {
					t.Fatalf("%d %v %s", a.Status, a.Header, a.Body)
				}
				if err := json.Unmarshal(a.Body, &got); err != nil {
					t.Fatal(err)
				}
			}
			ask(`"input":"What do I want?"`)
			if shown := len(got.Output) == 2 && string(got.Output[0]) == sealed; shown != tt.shown {
				t.Errorf("the client gets %s", got.Output)
			}
			if strings.Contains(tt.asked, "truncation") != (got.Truncation == "auto") {
				t.Errorf("truncation is %q", got.Truncation)
			}
			ask(`"input":"Which one?","previous_response_id":"` + got.ID + `"`)
			asked := up.Requests()
			if len(asked) != 2 {
				t.Fatalf("%d requests", len(asked))
			}
			for _, r := range asked {
				if !strings.Contains(string(r.Body), tt.sent) || r.Header.Get("Anthropic-Beta") != tt.beta {
					t.Errorf("%q %s", r.Header.Get("Anthropic-Beta"), r.Body)
				}
			}
			if second := string(asked[1].Body); strings.Count(second, tt.back) != 1 || !strings.Contains(second, "Which one?") {
				t.Errorf("the second request: %s", second)
			}
		})
	}
}

// Edits of Anthropic for a model of another provider are refused, and the list form is not sent to a provider that does
// not know it. // P50
func TestContextManagementOfOtherProviders(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Hello.")))
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml())
	for path, question := range map[string]string{"/v1/responses": `"input":"hi"`, "/v1/chat/completions": `"messages":[{"role":"user","content":"hi"}]`} {
		ask := func(members string) Answer {
			return g.Send("POST", path, strings.NewReader(`{"model":"m",`+question+`,`+members+`}`))
		}
		if a := ask(`"context_management":{"edits":[{"type":"compact_20260112"}]}`); a.Status != 400 || !strings.Contains(string(a.Body), "which the provider up does not understand") {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
		if a := ask(`"context_management":[{"type":"compaction","keep":1}]`); a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "context_management[0].keep" {
			t.Errorf("%s: %d %v %s", path, a.Status, a.Header, a.Body)
		}
	}
	if n := len(up.Requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
	for _, r := range up.Requests() {
		if strings.Contains(string(r.Body), "context_management") {
			t.Errorf("%s", r.Body)
		}
	}
}

// A conversation that has become too long is summarised once, and each later turn begins with the summary: 40 turns over a
// window of 8,192 tokens cost few summaries, and what the first turn said is in the last prompt. The summary is gone with
// what it was made of. // P50
func TestACompactionBelongsToItsConversation(t *testing.T) {
	NoLeaks(t)
	const fact, turns = "The boat is called Wanda.", 40
	const shorten = `"context_management":[{"type":"compaction","compact_threshold":5800}]`
	text := strings.Repeat("Waves come and go. ", 60)
	idOf := func(a Answer) (id string) {
		t.Helper()
		var of struct{ ID string }
		if err := json.Unmarshal(a.Body, &of); err != nil || a.Status != 200 {
			t.Fatalf("%d: %s", a.Status, a.Body)
		}
		return of.ID
	}
	for name, begin := range map[string]func(d Documented) (ask func(message string)){
		"a chain": func(d Documented) func(string) {
			previous := ""
			return func(message string) {
				body := fmt.Sprintf(`{"model":"m",%s,"instructions":"Be brief.","input":%q%s}`, shorten, message, previous)
				previous = fmt.Sprintf(`,"previous_response_id":%q`, idOf(d.Send("POST", "/v1/responses", strings.NewReader(body))))
			}
		},
		"a conversation": func(d Documented) func(string) {
			id := idOf(d.Send("POST", "/v1/conversations", strings.NewReader("{}")))
			return func(message string) {
				body := fmt.Sprintf(`{"model":"m",%s,"instructions":"Be brief.","input":%q,"conversation":%q}`, shorten, message, id)
				idOf(d.Send("POST", "/v1/responses", strings.NewReader(body)))
			}
		},
		"a chat session": func(d Documented) func(string) {
			messages := []map[string]string{{"role": "system", "content": "Be brief."}}
			return func(message string) {
				messages = append(messages, map[string]string{"role": "user", "content": message})
				all, err := json.Marshal(messages)
				if err != nil {
					d.T.Fatal(err)
				}
				a := d.Post(fmt.Sprintf(`{"model":"m","session_id":"s","messages":%s}`, all))
				if a.Status != 200 {
					d.T.Fatalf("%d %s", a.Status, a.Body)
				}
				said, _ := a.Completion(d.T)
				messages = append(messages, map[string]string{"role": "assistant", "content": said})
			}
		},
		"the session of an agent": func(d Documented) func(string) {
			agent, session := d.NewAgent(`,"system_prompt":"Be brief."`), ""
			return func(message string) {
				frames := AgentFrames(d.T, d.StreamAgent(agent, fmt.Sprintf(`{"message":%q%s}`, message, session)).Body)
				session = fmt.Sprintf(`,"session_id":%q`, frames[0]["session_id"])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var summaries int
			up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
				tokens := len(r.Body) / 4
				switch {
				case tokens > 8192:
					t.Errorf("a prompt has %d tokens: %.200s … %s", tokens, r.Body, r.Body[len(r.Body)-300:])
					http.Error(w, `{"error":{"message":"too long"}}`, 400)
				case strings.Contains(string(r.Body), "Write a summary"):
					summaries++
					known := ""
					if strings.Contains(string(r.Body), fact) {
						known = fact
					}
					Says("They talk about the sea. " + known).Reading(tokens).Write(w)
				default:
					Says("Yes. " + text).Reading(tokens).Write(w)
				}
			})
			d := Manage(MustRun(t, "models: [{model: m, context_window: 8192}]\n"+Site{Upstream: up.URL, Runtime: "context: auto"}.Yaml()))
			ask := begin(d)
			ask(fact + " " + text)
			for n := range turns - 1 {
				ask(fmt.Sprintf("Question %d. %s", n+2, text))
			}
			calls := up.Requests()
			if last := string(calls[len(calls)-1].Body); !strings.Contains(last, fact) || strings.Count(last, "Be brief.") > 1 {
				t.Errorf("the last prompt is %.2000s", last)
			}
			if summaries == 0 || len(calls) > turns+6 {
				t.Errorf("%d turns made %d model calls, %d of them summaries", turns, len(calls), summaries)
			}
		})
	}
}
