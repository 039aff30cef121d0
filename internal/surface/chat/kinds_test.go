package chat_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestAProviderOfKindAnthropic(t *testing.T) {
	NoLeaks(t)
	for name, tt := range map[string]struct{ base, more string }{
		"base URL with the version":       {"/v1", ""},
		"base URL without the version":    {"", ""},
		"with an output limit of its own": {"", ", default_max_tokens: 77"},
	} {
		t.Run(name, func(t *testing.T) {
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
				if r.Method == http.MethodGet {
					_, _ = w.Write([]byte(`{"data":[{"id":"g-1","created_at":"2026-02-04T00:00:00Z"}],"has_more":false}`))
					return
				}
				_, _ = w.Write([]byte(`{"type":"message","id":"msg_1","model":"m","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`))
			})
			yaml := Claude(Site{Upstream: up.URL, Servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}, tt.more)
			yaml = strings.Replace(yaml, up.URL+"/v1", up.URL+tt.base, 1)
			d := Manage(MustRun(t, yaml))
			if diff := cmp.Diff([]string{"up/m@0", "up/g-1@1770163200"}, modelsOf(d)); diff != "" {
				t.Error(diff)
			}
			a := d.Post(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
			if a.Status != 200 || !strings.Contains(string(a.Body), `"Hello."`) {
				t.Fatalf("status %d: %s", a.Status, a.Body)
			}
			asked := up.Requests()
			last := asked[len(asked)-1]
			var body struct {
				MaxTokens int `json:"max_tokens"`
			}
			if err := json.Unmarshal(last.Body, &body); err != nil {
				t.Fatal(err)
			}
			want := 8192
			if tt.more != "" {
				want = 77
			}
			if last.Path != "/v1/messages" || body.MaxTokens != want || last.Header.Get("X-Api-Key") != "CANARY-upstream-key" || last.Header.Get("Authorization") != "" {
				t.Errorf("%s with %d tokens and %v", last.Path, body.MaxTokens, last.Header)
			}
		})
	}
}

func TestAProviderOfKindGemini(t *testing.T) { // M03
	NoLeaks(t)
	for name, tt := range map[string]struct{ base, more, path string }{
		"base URL with the version":    {"/v1beta", "", "/v1beta"},
		"base URL without the version": {"", "", "/v1beta"},
		"another version":              {"", ", api_version: v1", "/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
				if r.Method == http.MethodGet {
					_, _ = w.Write([]byte(`{"models":[{"name":"models/g-1","supportedGenerationMethods":["generateContent"]},{"name":"models/g-embed","supportedGenerationMethods":["embedContent"]}]}`))
					return
				}
				_, _ = w.Write([]byte(`{"candidates":[{"content":{"parts":[{"text":"Hello."}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2,"thoughtsTokenCount":4}}`))
			})
			yaml := Site{Upstream: up.URL, Servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}.Yaml()
			yaml = strings.Replace(yaml, "{name: up,", "{name: up, kind: gemini"+tt.more+",", 1)
			yaml = strings.Replace(yaml, up.URL+"/v1", up.URL+tt.base, 1)
			d := Manage(MustRun(t, yaml))
			if diff := cmp.Diff([]string{"up/m@0", "up/g-1@0"}, modelsOf(d)); diff != "" {
				t.Error(diff)
			}
			a := d.Post(`{"model":"m","messages":[{"role":"user","content":"hi"}],"verbosity":"low"}`)
			if a.Status != 200 || !strings.Contains(string(a.Body), `"Hello."`) || !strings.Contains(string(a.Body), `"completion_tokens":6`) || a.Header.Get("Turnpike-Dropped-Params") != "verbosity" {
				t.Fatalf("status %d: %s %v", a.Status, a.Body, a.Header)
			}
			asked := up.Requests()
			last := asked[len(asked)-1]
			if last.Path != tt.path+"/models/m:streamGenerateContent" || last.Header.Get("X-Goog-Api-Key") != "CANARY-upstream-key" || last.Header.Get("Authorization") != "" {
				t.Errorf("%s with %v", last.Path, last.Header)
			}
		})
	}
}

func TestAProviderOfKindOpenAIResponses(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		_, _ = w.Write([]byte(`{"object":"response","id":"resp_1","model":"m","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`))
	})
	yaml := Site{Upstream: up.URL, Servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}.Yaml()
	g := MustRun(t, strings.Replace(yaml, "{name: up,", "{name: up, kind: openai-responses,", 1))
	a := g.Post(`{"model":"m","messages":[{"role":"user","content":"hi","cache_control":{"type":"ephemeral"}}]}`)
	if a.Status != 200 || !strings.Contains(string(a.Body), `"Hello."`) || a.Header.Get("Turnpike-Dropped-Params") != "cache_control" {
		t.Fatalf("status %d: %s %v", a.Status, a.Body, a.Header)
	}
	if asked := up.Requests(); len(asked) != 1 || asked[0].Path != "/v1/responses" || asked[0].Header.Get("Authorization") != "Bearer CANARY-upstream-key" {
		t.Errorf("%+v", asked)
	}
}

// Static keys, temporary credentials and API keys reach Bedrock, each as it wants them. The
// fake verifies signatures. // M04
func TestAProviderOfKindBedrock(t *testing.T) {
	NoLeaks(t)
	const id, key, token = turnpiketest.AWSAccessKeyID, turnpiketest.AWSSecretAccessKey, turnpiketest.AWSSessionToken
	for name, tt := range map[string]struct {
		keys, authorization string
		status              int
	}{
		"static keys":           {"region: us-east-1, access_key_id: " + id + ", secret_access_key: env:AWS_KEY", "AWS4-HMAC-SHA256 Credential=" + id + "/", 200},
		"temporary credentials": {"region: us-east-1, access_key_id: " + id + ", secret_access_key: env:AWS_KEY, session_token: " + token, "AWS4-HMAC-SHA256 ", 200},
		"an API key":            {"region: us-east-1, api_key: " + turnpiketest.BedrockAPIKey, "Bearer ", 200},
		"a wrong secret":        {"region: us-east-1, access_key_id: " + id + ", secret_access_key: wrong-secret", "AWS4-HMAC-SHA256 ", 502},
		"another region":        {"region: eu-west-1, access_key_id: " + id + ", secret_access_key: env:AWS_KEY", "AWS4-HMAC-SHA256 ", 502},
	} {
		t.Run(name, func(t *testing.T) {
			up := StrictUpstream(t, "text Hello.\nusage 3 2")
			yaml := strings.Replace(Site{Upstream: strings.TrimSuffix(up.URL, "/v1")}.Yaml(), "{name: up,", "{name: up, kind: bedrock, "+tt.keys+",", 1)
			yaml = strings.Replace(yaml, "api_key: env:UPSTREAM_KEY, ", "", 1)
			env := Environment()
			env["AWS_KEY"] = key
			g := MustRunIn(t, NewData(t), yaml, env)
			a := g.Post(`{"model":"g-amazon.nova-2-lite-v1:0","messages":[{"role":"user","content":"hi"}]}`)
			asked := up.Requests()
			if a.Status != tt.status || len(asked) == 0 || !strings.HasPrefix(asked[0].Header.Get("Authorization"), tt.authorization) {
				t.Fatalf("status %d: %s, %+v", a.Status, a.Body, asked)
			}
			if tt.status == 200 && !strings.Contains(string(a.Body), `"Hello."`) || tt.status == 502 && *a.Fault(t).Error.Code != "upstream_credential_refused" {
				t.Errorf("%s", a.Body)
			}
			if asked[0].Path != "/v1/model/g-amazon.nova-2-lite-v1:0/converse-stream" {
				t.Error(asked[0].Path)
			}
		})
	}
}

// Without keys in the configuration the AWS chain is asked, through the gateway's own
// client, at the first request and not before. // M04
func TestTheAWSChainOfAProviderOfKindBedrock(t *testing.T) {
	Alone(t)
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	var asked atomic.Int32
	roles := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":%q,"Token":%q,"Expiration":%q}`,
			turnpiketest.AWSAccessKeyID, turnpiketest.AWSSecretAccessKey, turnpiketest.AWSSessionToken, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	t.Cleanup(roles.Close)
	nowhere := t.TempDir()
	t.Setenv("AWS_CONFIG_FILE", nowhere+"/config")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", nowhere+"/credentials")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", roles.URL)
	up := StrictUpstream(t, "text Hello.\nagain")
	yaml := strings.Replace(Site{Upstream: strings.TrimSuffix(up.URL, "/v1")}.Yaml(), "{name: up,", "{name: up, kind: bedrock, region: us-east-1,", 1)
	g := MustRun(t, strings.Replace(yaml, "api_key: env:UPSTREAM_KEY, ", "", 1))
	if asked.Load() != 0 {
		t.Error("the start looks for credentials")
	}
	for range 2 {
		if a := g.Post(Question); a.Status != 200 {
			t.Fatalf("status %d: %s", a.Status, a.Body)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("credentials were looked up %d times", n)
	}
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
	g = MustRun(t, strings.Replace(yaml, "api_key: env:UPSTREAM_KEY, ", "", 1))
	if a := g.Post(Question); a.Status != 502 {
		t.Errorf("without credentials: status %d: %s", a.Status, a.Body)
	}
}

// Converse takes only bytes: the gateway fetches https:// URLs too, within the outbound
// policy. // P22
func TestImagesForAProviderOfKindBedrock(t *testing.T) {
	NoLeaks(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x89PNG\r\n\x1a\n0000")) }))
	t.Cleanup(web.Close)
	up := StrictUpstream(t, "text Hello.\nagain")
	yaml, _ := OfKind(Site{Upstream: strings.TrimSuffix(up.URL, "/v1"), Servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}.Yaml(), "bedrock")
	g := MustRun(t, yaml)
	for url, want := range map[string]string{
		web.URL + "/i.png":            `{"image":{"format":"png","source":{"bytes":"iVBORw0KGgowMDAw"}}}`,
		"https://10.0.0.1/i.png":      `"code":"outbound_ssrf_blocked"`,
		"data:image/tiff;base64,AA==": `"param":"messages[0].content[1].image_url","code":"unsupported_value"`,
	} {
		before := len(up.Requests())
		a := g.Post(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"?"},{"type":"image_url","image_url":{"url":%q}}]}]}`, url))
		said := string(a.Body)
		if sent := up.Requests()[before:]; a.Status == 200 && len(sent) == 1 {
			said = string(sent[0].Body)
		}
		if !strings.Contains(said, want) {
			t.Errorf("%s: status %d: %s", url, a.Status, said)
		}
	}
}

// Azure OpenAI has its key in the header api-key, and its API below /openai/v1 or below
// the path of a deployment with a version in the query. // M01 M03
func TestAzureOpenAI(t *testing.T) {
	NoLeaks(t)
	const completion = `{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
	const response = `{"object":"response","id":"resp_1","model":"m","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"Hello.","annotations":[]}]}],"usage":{"input_tokens":3,"output_tokens":2,"total_tokens":5}}`
	for _, tt := range []struct{ kind, base, answer, want string }{
		{"openai", "/openai/v1", completion, "/openai/v1/chat/completions"},
		{"openai", "/openai/deployments/my-gpt?api-version=2024-10-21", completion, "/openai/deployments/my-gpt/chat/completions?api-version=2024-10-21"},
		{"openai-responses", "/openai/v1", response, "/openai/v1/responses"},
		{"openai-responses", "/openai/v1/?api-version=preview", response, "/openai/v1/responses?api-version=preview"},
	} {
		for _, loop := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %s loop %v", tt.kind, tt.base, loop), func(t *testing.T) {
				var asked []string
				var headers http.Header
				up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					asked, headers = append(asked, r.RequestURI), r.Header
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, tt.answer)
				}))
				t.Cleanup(up.Close)
				s := Site{Upstream: up.URL}
				if loop {
					s.Servers = []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}
				}
				yaml := strings.Replace(s.Yaml(), "{name: up,", "{name: up, kind: "+tt.kind+", api_key_header: api-key,", 1)
				g := MustRun(t, strings.Replace(yaml, up.URL+"/v1", up.URL+tt.base, 1))
				a := g.Post(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
				if a.Status != 200 || !strings.Contains(string(a.Body), `"Hello."`) {
					t.Fatalf("status %d: %s", a.Status, a.Body)
				}
				if len(asked) != 1 || asked[0] != tt.want || headers.Get("Api-Key") != "CANARY-upstream-key" || headers.Get("Authorization") != "" {
					t.Errorf("%q with %v", asked, headers)
				}
			})
		}
	}
}
