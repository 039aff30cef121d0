package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A provider that shortens prompts itself gets what the client asks of it, and its compaction comes back to it
// with the next request of the conversation, byte for byte. // P50
func TestCompactionsOfTheProviderStayInTheConversation(t *testing.T) {
	noLeaks(t)
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
			up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, r received) {
				w.Header().Set("Content-Type", "application/json")
				answer := tt.later
				if r.number == 0 {
					answer = tt.answer
				}
				_, _ = w.Write([]byte(answer))
			})
			g := MustRun(t, strings.Replace(site{upstream: up.URL}.yaml(), "{name: up,", "{name: up, kind: "+tt.kind+",", 1))
			var got struct {
				ID         string
				Truncation string
				Output     []json.RawMessage
			}
			ask := func(more string) {
				t.Helper()
				a := g.send("POST", "/v1/responses", strings.NewReader(`{"model":"m",`+tt.asked+`,`+more+`}`))
				if a.status != 200 || a.header.Get("Turnpike-Dropped-Params") != "" {
					t.Fatalf("%d %v %s", a.status, a.header, a.body)
				}
				if err := json.Unmarshal(a.body, &got); err != nil {
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
			asked := up.requests()
			if len(asked) != 2 {
				t.Fatalf("%d requests", len(asked))
			}
			for _, r := range asked {
				if !strings.Contains(string(r.body), tt.sent) || r.header.Get("Anthropic-Beta") != tt.beta {
					t.Errorf("%q %s", r.header.Get("Anthropic-Beta"), r.body)
				}
			}
			if second := string(asked[1].body); strings.Count(second, tt.back) != 1 || !strings.Contains(second, "Which one?") {
				t.Errorf("the second request: %s", second)
			}
		})
	}
}

// Edits of Anthropic for a model of another provider are refused, and the list form is not sent to a provider that does
// not know it. // P50
func TestContextManagementOfOtherProviders(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("Hello.")))
	tools := newMCP(t, map[string]handler{"look": echo}, "look")
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml())
	for path, question := range map[string]string{"/v1/responses": `"input":"hi"`, "/v1/chat/completions": `"messages":[{"role":"user","content":"hi"}]`} {
		ask := func(members string) answer {
			return g.send("POST", path, strings.NewReader(`{"model":"m",`+question+`,`+members+`}`))
		}
		if a := ask(`"context_management":{"edits":[{"type":"compact_20260112"}]}`); a.status != 400 || !strings.Contains(string(a.body), "which the provider up does not understand") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		if a := ask(`"context_management":[{"type":"compaction","keep":1}]`); a.status != 200 || a.header.Get("Turnpike-Dropped-Params") != "context_management[0].keep" {
			t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
		}
	}
	if n := len(up.requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
	for _, r := range up.requests() {
		if strings.Contains(string(r.body), "context_management") {
			t.Errorf("%s", r.body)
		}
	}
}

// A conversation that has become too long is summarised once, and each later turn begins with the summary: 40 turns over a
// window of 8,192 tokens cost few summaries, and what the first turn said is in the last prompt. The summary is gone with
// what it was made of. // P50
func TestACompactionBelongsToItsConversation(t *testing.T) {
	noLeaks(t)
	const fact, turns = "The boat is called Wanda.", 40
	const shorten = `"context_management":[{"type":"compaction","compact_threshold":5800}]`
	text := strings.Repeat("Waves come and go. ", 60)
	idOf := func(a answer) (id string) {
		t.Helper()
		var of struct{ ID string }
		if err := json.Unmarshal(a.body, &of); err != nil || a.status != 200 {
			t.Fatalf("%d: %s", a.status, a.body)
		}
		return of.ID
	}
	for name, begin := range map[string]func(d documented) (ask func(message string)){
		"a chain": func(d documented) func(string) {
			previous := ""
			return func(message string) {
				body := fmt.Sprintf(`{"model":"m",%s,"instructions":"Be brief.","input":%q%s}`, shorten, message, previous)
				previous = fmt.Sprintf(`,"previous_response_id":%q`, idOf(d.send("POST", "/v1/responses", strings.NewReader(body))))
			}
		},
		"a conversation": func(d documented) func(string) {
			id := idOf(d.send("POST", "/v1/conversations", strings.NewReader("{}")))
			return func(message string) {
				body := fmt.Sprintf(`{"model":"m",%s,"instructions":"Be brief.","input":%q,"conversation":%q}`, shorten, message, id)
				idOf(d.send("POST", "/v1/responses", strings.NewReader(body)))
			}
		},
		"the session of an agent": func(d documented) func(string) {
			agent, session := d.newAgent(`,"system_prompt":"Be brief."`), ""
			return func(message string) {
				frames := agentFrames(d.t, d.streamAgent(agent, fmt.Sprintf(`{"message":%q%s}`, message, session)).body)
				session = fmt.Sprintf(`,"session_id":%q`, frames[0]["session_id"])
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var summaries int
			up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, r received) {
				tokens := len(r.body) / 4
				switch {
				case tokens > 8192:
					t.Errorf("a prompt has %d tokens: %.200s … %s", tokens, r.body, r.body[len(r.body)-300:])
					http.Error(w, `{"error":{"message":"too long"}}`, 400)
				case strings.Contains(string(r.body), "Write a summary"):
					summaries++
					known := ""
					if strings.Contains(string(r.body), fact) {
						known = fact
					}
					says("They talk about the sea. " + known).reading(tokens).write(w)
				default:
					says("Yes. " + text).reading(tokens).write(w)
				}
			})
			d := manage(MustRun(t, "models: [{model: m, context_window: 8192}]\n"+site{upstream: up.URL}.yaml()))
			ask := begin(d)
			ask(fact + " " + text)
			for n := range turns - 1 {
				ask(fmt.Sprintf("Question %d. %s", n+2, text))
			}
			calls := up.requests()
			if last := string(calls[len(calls)-1].body); !strings.Contains(last, fact) || strings.Count(last, "Be brief.") > 1 {
				t.Errorf("the last prompt is %.2000s", last)
			}
			if summaries == 0 || len(calls) > turns+6 {
				t.Errorf("%d turns made %d model calls, %d of them summaries", turns, len(calls), summaries)
			}
		})
	}
}
