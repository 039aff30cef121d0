package app_test

import (
	"encoding/json"
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
