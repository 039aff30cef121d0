package chat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// form is a form as a client sends it: pairs of names and texts, and a file.
func form(t *testing.T, file []byte, fields ...string) (body []byte, kind string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", `talk "1" \ü.mp3`)
	if err == nil {
		_, err = part.Write(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(fields); i += 2 {
		if err := w.WriteField(fields[i], fields[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), w.FormDataContentType()
}

func answers(kind, body string) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	}
}

// Every endpoint gets to the provider, with its name for the model and nothing else changed, and is in the
// audit log. // P63
func TestEveryEndpointIsRelayed(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, answers("application/x-odd", "answer \x00\xff"))
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	speech := bytes.Repeat([]byte("sound"), 1000)
	paths := []string{"/completions", "/embeddings", "/moderations", "/images/generations", "/images/edits", "/audio/speech", "/audio/transcriptions", "/audio/translations"}
	for i, path := range paths {
		body, kind := []byte(`{ "input":"x","model" : "up/odd-1","n":1e0, "user":"u7"}`), "application/json"
		isForm := strings.HasSuffix(path, "edits") || strings.HasSuffix(path, "tions") && strings.HasPrefix(path, "/audio")
		if isForm {
			body, kind = form(t, speech, "language", "de", "model", "up/odd-1", "user", "u7")
		}
		got := g.Send("POST", "/v1"+path, bytes.NewReader(body), "Content-Type", kind)
		if got.Status != 200 || string(got.Body) != "answer \x00\xff" || got.Header.Get("Content-Type") != "application/x-odd" || got.Header.Get("Turnpike-Served-By") != "up/odd-1" {
			t.Fatalf("%s: %d %v %q", path, got.Status, got.Header, got.Body)
		}
		sent := up.Requests()[i]
		if sent.Path != "/v1"+path || sent.Header.Get("Authorization") != "Bearer CANARY-upstream-key" || sent.Header.Get("Content-Type") != kind ||
			sent.Header.Get("Content-Length") != fmt.Sprint(len(sent.Body)) {
			t.Errorf("%s: %v", sent.Path, sent.Header)
		}
		if !isForm {
			if string(sent.Body) != `{ "input":"x","model" : "odd-1","n":1e0, "user":"u7"}` {
				t.Errorf("%s: %s", path, sent.Body)
			}
			continue
		}
		fields := formFields(t, sent)
		if fields["file"][0] != string(speech) || fields["model"][0] != "odd-1" || fields["language"][0] != "de" || fields["name of file"][0] != `talk "1" \ü.mp3` {
			t.Errorf("%s: %q", path, fields)
		}
	}
	rows := g.AuditRows(len(paths))
	for _, path := range paths {
		if !strings.Contains(string(rows.Body), `"via":"`+path[1:]+`"`) {
			t.Errorf("no audit row of %s: %s", path, rows.Body)
		}
	}
	if n := strings.Count(string(rows.Body), `"end_user":"u7"`); n != len(paths) {
		t.Errorf("%d audit rows name the end user", n)
	}
}

// What is not relayed says why, and who has what a provider has not. // P63
func TestWhatIsNotRelayedSaysWhy(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, answers("application/json", Embedding))
	g := MustRun(t, strings.Replace(Site{Upstream: up.URL}.Yaml(), "outbound:", fmt.Sprintf("  - {name: claude, kind: anthropic, base_url: %q, api_key: env:UPSTREAM_KEY, models: [claude-x]}\noutbound:", up.URL), 1))
	small := strings.NewReader(`{"model":"m","input":"x"}`)
	for name, tt := range map[string]struct {
		method, path, body string
		fields             []string
		status             int
		says               string
	}{
		"batches":           {"POST", "/v1/batches", "{}", nil, 404, "all orgs of the gateway share the provider's key"},
		"a batch":           {"GET", "/v1/batches/b1", "", nil, 404, "not_relayed"},
		"another provider":  {"POST", "/v1/embeddings", `{"model":"claude-x"}`, nil, 400, "the provider claude has no endpoint /v1/embeddings; use a model of a provider that has it: up"},
		"no model":          {"POST", "/v1/embeddings", `{"input":"x"}`, nil, 400, "names no model"},
		"an unknown model":  {"POST", "/v1/embeddings", `{"model":"y"}`, nil, 404, "model_not_found"},
		"another case":      {"POST", "/v1/embeddings", `{"model":"m","Model":"z"}`, nil, 400, "case-sensitive"},
		"no JSON":           {"POST", "/v1/embeddings", `{"model":"m"`, nil, 400, "invalid_json"},
		"a form":            {"POST", "/v1/embeddings", `--b--`, []string{"Content-Type", "multipart/form-data; boundary=b"}, 415, "takes JSON"},
		"a form of chat":    {"POST", "/v1/chat/completions", `--b--`, []string{"Content-Type", "multipart/form-data; boundary=b"}, 415, "send JSON"},
		"a role":            {"POST", "/v1/embeddings", `{"model":"m"}`, []string{"Authorization", "Bearer reader-key"}, 403, "role_not_allowed"},
		"no key":            {"POST", "/v1/embeddings", `{"model":"m"}`, []string{"Authorization", "Bearer nobody"}, 401, "invalid_api_key"},
		"an extension":      {"POST", "/v1/embeddings", `{"model":"m"}`, []string{"turnpike-extensions", "trace"}, 400, "turnpike-extensions"},
		"another method":    {"GET", "/v1/embeddings", "", nil, 405, "use POST"},
		"variations":        {"POST", "/v1/images/variations", "{}", nil, 404, "no route"},
		"no end of a form":  {"POST", "/v1/audio/transcriptions", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n", []string{"Content-Type", "multipart/form-data; boundary=b"}, 400, "invalid_form"},
		"no name of a part": {"POST", "/v1/audio/transcriptions", "--b\r\nX: y\r\n\r\nm\r\n--b--", []string{"Content-Type", "multipart/form-data; boundary=b"}, 400, "has no name"},
		"a model in a file": {"POST", "/v1/audio/transcriptions", "--b\r\nContent-Disposition: form-data; name=\"model\"; filename=\"m\"\r\n\r\nm\r\n--b--", []string{"Content-Type", "multipart/form-data; boundary=b"}, 400, "model is a file"},
		"a part in the name": {"POST", "/v1/audio/transcriptions", "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nup/--b\nContent-Disposition: form-data; name=\"model\"\n\nother\r\n--b--",
			[]string{"Content-Type", "multipart/form-data; boundary=b"}, 400, "control characters"},
		"a long header": {"POST", "/v1/audio/transcriptions", "--b\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\nm\r\n--b--", []string{"Content-Type", "multipart/form-data; boundary=b"}, 400, "form_too_complex"},
		"many parts":    {"POST", "/v1/audio/transcriptions", strings.Repeat("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nm\r\n", 300) + "--b--", []string{"Content-Type", "multipart/form-data; boundary=b"}, 400, "form_too_complex"},
		"a large body":  {"POST", "/v1/embeddings", `{"model":"m","input":"` + strings.Repeat("x", 33<<20) + `"}`, nil, 413, "request_too_large"},
	} {
		t.Run(name, func(t *testing.T) {
			got := g.Send(tt.method, tt.path, strings.NewReader(tt.body), tt.fields...)
			if got.Status != tt.status || !strings.Contains(string(got.Body), tt.says) {
				t.Errorf("%d %s, want %d with %s", got.Status, got.Body, tt.status, tt.says)
			}
		})
	}
	if n := len(up.Requests()); n != 0 {
		t.Errorf("the provider was called %d times", n)
	}
	if got := g.Send("POST", "/v1/embeddings", small); got.Status != 200 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
}

// Large bodies go through files, of which nothing is left. // P63
func TestALargeBodyIsSpooled(t *testing.T) {
	NoLeaks(t)
	data := NewData(t)
	spooled := filepath.Join(data, app.SpoolDirectory)
	up := NewUpstream(t, answers("application/json", `{"text":"x"}`))
	g := MustRunIn(t, data, Site{Upstream: up.URL}.Yaml(), Environment())
	speech := bytes.Repeat([]byte{0, 1, 2, 255}, 25<<20/4)
	body, kind := form(t, speech, "model", "up/whisper")
	if got := g.Send("POST", "/v1/audio/transcriptions", bytes.NewReader(body), "Content-Type", kind); got.Status != 200 {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	if fields := formFields(t, up.Requests()[0]); fields["file"][0] != string(speech) || fields["model"][0] != "whisper" {
		t.Errorf("the provider got %d bytes for the model %q", len(fields["file"][0]), fields["model"])
	}
	large := `{"input":"` + strings.Repeat("é ", 4<<20) + `","model":"up/e"}`
	if got := g.Send("POST", "/v1/embeddings", io.MultiReader(strings.NewReader(large))); got.Status != 200 { // in chunks
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	if sent := string(up.Requests()[1].Body); sent != strings.Replace(large, "up/e", "e", 1) {
		t.Errorf("the provider got %d bytes", len(sent))
	}
	files, err := os.ReadDir(spooled)
	if err != nil || len(files) != 0 {
		t.Errorf("%v %v", files, err)
	}
}

// The limits of an org and of the process hold for the files of bodies. // P40 P63
func TestSpooledBodiesAreLimited(t *testing.T) {
	NoLeaks(t)
	reached, release := make(chan struct{}, 9), make(chan struct{})
	releaseAll := sync.OnceFunc(func() { close(release) })
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		reached <- struct{}{}
		<-release
		_, _ = io.WriteString(w, Embedding)
	})
	t.Cleanup(releaseAll)
	g := MustRun(t, "max_spool_mib: 12\nmax_relay_body_mib: 8\n"+Site{Upstream: up.URL}.Yaml())
	large := `{"model":"m","input":"` + strings.Repeat("x", 6<<20) + `"}`
	first := make(chan Answer, 1)
	go func() { first <- g.Send("POST", "/v1/embeddings", strings.NewReader(large)) }()
	Wait(t, reached, "the first request")
	got := g.Send("POST", "/v1/embeddings", strings.NewReader(large))
	if got.Status != 429 || *got.Fault(t).Error.Code != "org_spool_exceeded" || got.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	releaseAll()
	if got := Wait(t, first, "its answer"); got.Status != 200 {
		t.Errorf("%d %s", got.Status, got.Body)
	}
	if got := g.Send("POST", "/v1/embeddings", strings.NewReader(large)); got.Status != 200 {
		t.Errorf("afterwards: %d %s", got.Status, got.Body)
	}
}

// What a key may not use does not exist for it. // P46 C20 K10
func TestEndpointsObeyTheModelsOfAKey(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, answers("application/json", Embedding))
	g := MustRun(t, strings.Replace(Site{Upstream: up.URL}.Yaml(), "role: member}", "role: member, models: [\"g-*\"], end_users: true}", 1))
	for body, want := range map[string]int{`{"model":"g-1","user":"u"}`: 200, `{"model":"g-1"}`: 400, `{"model":"m","user":"u"}`: 404, `{"model":"up/g-1","user":"u"}`: 404, `{"model":"g-1","model":"m","user":"u"}`: 404} {
		if got := g.Send("POST", "/v1/embeddings", strings.NewReader(body), "Authorization", "Bearer member-key"); got.Status != want {
			t.Errorf("%s: %d %s, want %d", body, got.Status, got.Body, want)
		}
	}
	if n := len(up.Requests()); n != 1 {
		t.Errorf("the provider was called %d times", n)
	}
}

// Endpoints reserve from budgets, and what has no price is refused. // P57 P63
func TestEndpointsSpendFromBudgets(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(got.Body), "fail"):
			http.Error(w, `{"error":{"message":"no"}}`, 500)
		case strings.HasSuffix(r.URL.Path, "/embeddings"):
			fmt.Fprint(w, `{"data":[{"embedding":[0.1]}],"usage":{"prompt_tokens":1000,"total_tokens":1000}}`)
		case strings.HasSuffix(r.URL.Path, "/generations"):
			fmt.Fprint(w, `{"data":[{"b64_json":"`+strings.Repeat("A", 1<<20)+`"}],"usage":{"input_tokens":50,"output_tokens":200,"total_tokens":250}}`)
		default:
			fmt.Fprint(w, strings.Repeat("sound", 1<<18))
		}
	})
	g := inBudget(t, NewData(t), up, "budgets: [{scope: org, period: day, usd: 0.1}]")
	ask := func(path, body string, status int) Answer {
		t.Helper()
		got := g.Send("POST", "/v1/"+path, strings.NewReader(body))
		if got.Status != status {
			t.Fatalf("%s %s: %d %.300s, want %d", path, body, got.Status, got.Body, status)
		}
		return got
	}
	ask("embeddings", `{"model":"m","input":"x"}`, 200)
	ask("images/generations", `{"model":"m","prompt":"x"}`, 200)
	ask("embeddings", `{"model":"m","input":"fail"}`, 500)
	ask("audio/speech", `{"model":"m","input":"x"}`, 200)
	for _, path := range []string{"embeddings", "audio/speech", "images/generations", "moderations"} {
		if got := ask(path, `{"model":"g-1","input":"x"}`, 400); *got.Fault(t).Error.Code != "model_without_price" {
			t.Errorf("%s", got.Body)
		}
	}
	got := ask("images/generations", `{"model":"m","prompt":"x","n":10}`, 429) // 0.8 USD at most
	if *got.Fault(t).Error.Code != "budget_exceeded" {
		t.Errorf("%s", got.Body)
	}
	rows := g.AuditRows(4)
	for _, row := range []string{`"input_tokens":1000`, `"output_tokens":200`} {
		if !strings.Contains(string(rows.Body), row) {
			t.Errorf("no audit row has %s: %s", row, rows.Body)
		}
	}
}

// What each request of a relayed endpoint is charged with, read after a restart. // P57 P63
func TestWhatEndpointsCost(t *testing.T) {
	const sentence = "A sentence that somebody says, which has no more than sixty bytes. "
	for name, tt := range map[string]struct {
		path, body   string
		kind, answer string  // of the provider; without an answer it speaks until the client has left
		status       int     // of the answer
		limit        float64 // USD
		least, most  float64 // USD
	}{
		"embeddings with usage":            {"embeddings", `{"model":"m","input":"x"}`, "application/json", `{"usage":{"prompt_tokens":1000,"total_tokens":1000}}`, 200, 1, 0.001, 0.001},
		"a picture with usage":             {"images/generations", `{"model":"m","prompt":"x"}`, "application/json", `{"usage":{"input_tokens":50,"output_tokens":200,"total_tokens":250}}`, 200, 1, 0.00205, 0.00205},
		"an error":                         {"embeddings", `{"model":"m","input":"x"}`, "application/json", `{"error":{"message":"no"}}`, 500, 1, 0, 0},
		"speech":                           {"audio/speech", `{"model":"m","input":"x"}`, "audio/mpeg", "sound", 200, 1, 0.08192, 0.083},
		"speech that the client cuts":      {"audio/speech", `{"model":"m","input":"x"}`, "audio/mpeg", "", 200, 1, 0.08192, 0.083},
		"a text in which usage is spoken":  {"audio/transcriptions", `{"model":"m"}`, "text/plain", strings.Repeat(sentence, 45) + `"usage": {"prompt_tokens": 1}`, 200, 1, 0.08192, 0.083},
		"sound that looks like usage":      {"audio/speech", `{"model":"m","input":"x"}`, "audio/pcm", `"usage": {"prompt_tokens": 1}`, 200, 1, 0.08192, 0.083},
		"speech at a price of time":        {"audio/speech", `{"model":"g-gpu","input":"x"}`, "audio/mpeg", "sound", 200, 1, 0.0000004, 0.01},
		"of many completions, the best":    {"completions", `{"model":"m","prompt":"x","max_tokens":100,"n":1,"best_of":20}`, "application/json", `{}`, 429, 0.01, 0, 0},
		"a number of choices that changes": {"completions", `{"model":"m","prompt":"x","max_tokens":100,"n":20,"n":1}`, "application/json", `{}`, 429, 0.01, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			left := make(chan struct{})
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
				w.Header().Set("Content-Type", tt.kind)
				if tt.status != 429 {
					w.WriteHeader(tt.status)
				}
				if tt.answer != "" {
					_, _ = io.WriteString(w, tt.answer)
					return
				}
				_, _ = io.WriteString(w, "sound")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(left)
			})
			card, data := filepath.Join(t.TempDir(), "rates.yaml"), t.TempDir()
			rows := "- {model: m, provider: up, from: 2020-01-01, input: 1, output: 10}\n- {model: g-gpu, provider: up, from: 2020-01-01, gpu_second: 0.0004}\n"
			if err := os.WriteFile(card, []byte(rows), 0o600); err != nil {
				t.Fatal(err)
			}
			yaml := "rates: " + card + "\n" + Site{Upstream: up.URL, Runtime: fmt.Sprintf("budgets: [{scope: org, period: total, usd: %g}]", tt.limit)}.Yaml()
			g := MustRunIn(t, data, yaml, Environment())
			if tt.answer != "" {
				if got := g.Send("POST", "/v1/"+tt.path, strings.NewReader(tt.body)); got.Status != tt.status {
					t.Fatalf("%d %.300s, want %d", got.Status, got.Body, tt.status)
				}
			} else {
				ctx, leave := context.WithCancel(t.Context())
				resp, err := g.Client.Do(g.Request(ctx, "POST", "/v1/"+tt.path, strings.NewReader(tt.body)))
				if err == nil {
					_, err = io.ReadFull(resp.Body, make([]byte, 5))
					leave()
					_ = resp.Body.Close()
				}
				if leave(); err != nil {
					t.Fatal(err)
				}
				Wait(t, left, "the provider is left")
			}
			if err := g.Stop(); err != nil {
				t.Fatal(err)
			}
			g = MustRunIn(t, data, yaml, Environment())
			b := BudgetsOf(t, g)["org/total"]
			if b == nil {
				b = map[string]any{"spent_usd": 0.0, "reserved_usd": 0.0} // nothing was drawn
			}
			if spent := b["spent_usd"].(float64); spent < tt.least-1e-12 || spent > tt.most+1e-12 || b["reserved_usd"].(float64) != 0 {
				t.Errorf("spent %v and reserved %v USD, want %v to %v spent", spent, b["reserved_usd"], tt.least, tt.most)
			}
		})
	}
}

// A body can be sent again, so that a route falls back. No target gets the credential of another one. // P63 I08
func TestEndpointsFallBack(t *testing.T) {
	for name, tt := range map[string]struct {
		first func(http.ResponseWriter, *http.Request, Received)
		calls int
		want  int
	}{
		"503":                {Refuses(503), 4, 200},
		"a refused key":      {Refuses(401), 1, 200},
		"a wrong request":    {Refuses(400), 1, 400},
		"it breaks at first": {firstAndLast(BreaksAfter("")), 4, 200},
	} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			one, two := NewUpstream(t, tt.first), NewUpstream(t, answers("application/json", Embedding))
			g := MustRun(t, strings.Replace(RoutesYAML(one.URL, two.URL, ""), "{name: up,", "{name: up, api_key_header: x-secret,", 1))
			large := `{"input":"` + strings.Repeat("x", 2<<20) + `","model":"fast"}`
			got := g.Send("POST", "/v1/embeddings", strings.NewReader(large))
			if got.Status != tt.want || len(one.Requests()) != tt.calls {
				t.Fatalf("%d %.300s after %d calls", got.Status, got.Body, len(one.Requests()))
			}
			for _, r := range one.Requests() {
				if string(r.Body) != strings.Replace(large, "fast", "a", 1) || r.Header.Get("X-Secret") != "CANARY-upstream-key" {
					t.Errorf("the first got %d bytes and %v", len(r.Body), r.Header)
				}
			}
			if tt.want != 200 {
				if !strings.Contains(string(got.Body), "first says") {
					t.Errorf("%s", got.Body)
				}
				return
			}
			if r := two.Requests()[0]; string(r.Body) != strings.Replace(large, "fast", "b", 1) || r.Header.Get("X-Secret") != "" || got.Header.Get("Turnpike-Served-By") != "two/b" {
				t.Errorf("the second got %d bytes and %v; %v", len(r.Body), r.Header, got.Header)
			}
		})
	}
}

// The error of the first target is reported if all fail.
func TestEndpointsReportTheFirstError(t *testing.T) {
	NoLeaks(t)
	one, two := NewUpstream(t, Refuses(503)), NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Retry-After-Ms", "1")
		http.Error(w, `{"error":{"message":"second"}}`, 500)
	})
	g := MustRun(t, RoutesYAML(one.URL, two.URL, ""))
	got := g.Send("POST", "/v1/embeddings", strings.NewReader(`{"model":"fast","input":"x"}`))
	if got.Status != 503 || got.Fault(t).Error.Message != "first says 503" || got.Header.Get("X-Should-Retry") != "false" {
		t.Errorf("%d %s %v, after %d and %d calls", got.Status, got.Body, got.Header, len(one.Requests()), len(two.Requests()))
	}
}

// An answer is passed on while it comes. The provider is left when the client leaves, and when its key is revoked. // P63
func TestSpeechIsStreamedAndEnds(t *testing.T) {
	for _, how := range []string{"the client leaves", "the key is revoked"} {
		t.Run(how, func(t *testing.T) {
			NoLeaks(t)
			left := make(chan struct{})
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
				w.Header().Set("Content-Type", "audio/mpeg")
				_, _ = io.WriteString(w, "first")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				close(left)
			})
			g := MustRun(t, Site{Upstream: up.URL}.Yaml())
			made := g.Send("POST", "/api/keys", strings.NewReader(`{"name":"new","role":"member"}`))
			var key struct{ ID, Key string }
			if err := json.Unmarshal(made.Body, &key); err != nil || made.Status != 201 {
				t.Fatalf("%d %s", made.Status, made.Body)
			}
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			resp, err := g.Client.Do(g.Request(ctx, "POST", "/v1/audio/speech", strings.NewReader(`{"model":"m","input":"x"}`), "Authorization", "Bearer "+key.Key))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			begun := make([]byte, 5)
			if _, err := io.ReadFull(resp.Body, begun); err != nil || string(begun) != "first" || resp.Header.Get("Content-Type") != "audio/mpeg" {
				t.Fatalf("%q %v %v", begun, resp.Header, err)
			}
			if how == "the client leaves" {
				leave()
			} else if got := g.Send("DELETE", "/api/keys/"+key.ID, nil); got.Status >= 300 {
				t.Fatalf("%d %s", got.Status, got.Body)
			}
			Wait(t, left, "the provider is left")
			if _, err := io.ReadAll(resp.Body); err == nil {
				t.Error("the answer seems to be complete")
			}
		})
	}
}

// formFields returns the fields of a form that the provider got; of files, their bytes.
func formFields(t *testing.T, r Received) map[string][]string {
	t.Helper()
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
	for {
		part, err := parts.NextPart()
		if err == io.EOF {
			return out
		}
		data, readErr := io.ReadAll(part)
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		out[part.FormName()] = append(out[part.FormName()], string(data))
		if part.FileName() != "" {
			out["name of "+part.FormName()] = []string{part.FileName()}
		}
	}
}
