package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/app"
)

// claude returns a configuration whose model is behind the Messages dialect.
func claude(s site, more string) string {
	yaml := s.yaml()
	return strings.Replace(yaml, "{name: up,", "{name: up, kind: anthropic"+more+",", 1)
}

func TestAProviderOfKindAnthropic(t *testing.T) {
	noLeaks(t)
	for name, tt := range map[string]struct{ base, more string }{
		"base URL with the version":       {"/v1", ""},
		"base URL without the version":    {"", ""},
		"with an output limit of its own": {"", ", default_max_tokens: 77"},
	} {
		t.Run(name, func(t *testing.T) {
			up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, _ received) {
				if r.Method == http.MethodGet {
					_, _ = w.Write([]byte(`{"data":[{"id":"g-1","created_at":"2026-02-04T00:00:00Z"}],"has_more":false}`))
					return
				}
				_, _ = w.Write([]byte(`{"type":"message","id":"msg_1","model":"m","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`))
			})
			yaml := claude(site{upstream: up.URL, servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}, tt.more)
			yaml = strings.Replace(yaml, up.URL+"/v1", up.URL+tt.base, 1)
			d := manage(MustRun(t, yaml))
			if diff := cmp.Diff([]string{"up/m@0", "up/g-1@1770163200"}, d.models()); diff != "" {
				t.Error(diff)
			}
			a := d.post(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
			if a.status != 200 || !strings.Contains(string(a.body), `"Hello."`) {
				t.Fatalf("status %d: %s", a.status, a.body)
			}
			asked := up.requests()
			last := asked[len(asked)-1]
			var body struct {
				MaxTokens int `json:"max_tokens"`
			}
			if err := json.Unmarshal(last.body, &body); err != nil {
				t.Fatal(err)
			}
			want := 8192
			if tt.more != "" {
				want = 77
			}
			if last.path != "/v1/messages" || body.MaxTokens != want || last.header.Get("X-Api-Key") != "CANARY-upstream-key" || last.header.Get("Authorization") != "" {
				t.Errorf("%s with %d tokens and %v", last.path, body.MaxTokens, last.header)
			}
		})
	}
}

func TestAProviderOfKindOpenAIResponses(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		_, _ = w.Write([]byte(`{"object":"response","id":"resp_1","model":"m","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`))
	})
	yaml := site{upstream: up.URL, servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}.yaml()
	g := MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: openai-responses,", 1))
	a := g.post(`{"model":"m","messages":[{"role":"user","content":"hi","cache_control":{"type":"ephemeral"}}]}`)
	if a.status != 200 || !strings.Contains(string(a.body), `"Hello."`) || a.header.Get("Turnpike-Dropped-Params") != "cache_control" {
		t.Fatalf("status %d: %s %v", a.status, a.body, a.header)
	}
	if asked := up.requests(); len(asked) != 1 || asked[0].path != "/v1/responses" || asked[0].header.Get("Authorization") != "Bearer CANARY-upstream-key" {
		t.Errorf("%+v", asked)
	}
}

// An image that the provider does not fetch is fetched within the outbound policy; one
// that it does not take is refused with its place. // P22
func TestImagesForAProviderOfKindAnthropic(t *testing.T) {
	noLeaks(t)
	images := http.NewServeMux()
	images.HandleFunc("/i.png", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x89PNG\r\n\x1a\n0000")) })
	images.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/i.png", http.StatusFound) })
	images.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, app.MaxFetchedFile+1)) })
	web := httptest.NewServer(images)
	t.Cleanup(web.Close)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
		_, _ = w.Write([]byte(`{"type":"message","id":"msg_1","model":"m","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`))
	})
	g := MustRun(t, claude(site{upstream: up.URL, servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}, ""))
	for _, tt := range []struct {
		name, url, key string
		status         int
		want           string // of the answer, or of the request that was sent
	}{
		{"fetched", web.URL + "/i.png", "owner-key", 200, `"source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgowMDAw"}`},
		{"not there", web.URL + "/no.png", "owner-key", 400, `"message":"messages[0].content[1].image_url: the URL could not be fetched: its server answered 404","type":"invalid_request_error","param":"messages[0].content[1].image_url","code":"unsupported_value"`},
		{"moved", web.URL + "/moved", "owner-key", 400, `the URL could not be fetched: its server cannot be reached, or redirects to another URL`},
		{"too large", web.URL + "/large", "owner-key", 400, `the file at the URL is larger than 20 MiB`},
		{"not taken", "data:image/tiff;base64,AA==", "owner-key", 400, `"param":"messages[0].content[1].image_url","code":"unsupported_value"`},
		{"forbidden", "http://10.0.0.1/i.png", "owner-key", 403, `"message":"outbound_ssrf_blocked: ssrf_blocked:private:10.0.0.1; the outbound policy refuses the URL at messages[0].content[1].image_url","type":"permission_error","param":"messages[0].content[1].image_url","code":"outbound_ssrf_blocked","setting":"outbound.ssrf.allowlist_cidrs"`},
		{"forbidden, told to a member", "http://10.0.0.1/i.png", "member-key", 403, `"message":"outbound_ssrf_blocked: ssrf_blocked:private; the outbound policy refuses the URL at messages[0].content[1].image_url"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(up.requests())
			body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"?"},{"type":"image_url","image_url":{"url":%q}}]}]}`, tt.url)
			a := g.post(body, "Authorization", "Bearer "+tt.key)
			sent := up.requests()[before:]
			said := string(a.body)
			if tt.status == 200 && len(sent) == 1 {
				said = string(sent[0].body)
			}
			if a.status != tt.status || !strings.Contains(said, tt.want) || (len(sent) == 1) != (tt.status == 200) {
				t.Errorf("status %d after %d requests: %s\nsaid %s", a.status, len(sent), a.body, said)
			}
		})
	}
}
