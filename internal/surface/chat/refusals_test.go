package chat_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

const maxBody = 10 << 20

// G17 and the error shapes that the official clients turn into their classes.
func TestWhatIsWrongWithARequestIsSaid(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	on := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	off := MustRun(t, Site{Upstream: up.URL}.Yaml())

	const userMessage = `"messages":[{"role":"user","content":"x"}]`
	type want struct {
		status int
		kind   string
		code   string
		says   []string
	}
	invalid := func(code string, says ...string) want { return want{400, "invalid_request_error", code, says} }
	for _, tt := range []struct {
		name string
		body string
		want want
		loop bool // only where the loop is on
	}{
		{"no body", "", invalid("invalid_json", "at byte 0 (line 1, column 1)"), false},
		{"no JSON", "model=m", invalid("invalid_json", "at byte 0"), false},
		{"a cut body", `{"model":"m","messages":[`, invalid("invalid_json", "at byte 25"), false},
		{"a broken second line", "{\"model\":\"m\",\n \"x\" 1}", invalid("invalid_json", "line 2, column 6"), false},
		{"a list", `[]`, invalid("invalid_json", "an object"), false},
		{"two objects", `{"model":"m"}{}`, invalid("invalid_json", "at byte 13"), false},
		{"a byte order mark is skipped", "\ufeff{}", invalid("missing_required_parameter", "no model"), false},
		{"too deep", `{"model":"m","x":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, invalid("invalid_json", "levels"), false},
		{"no model", `{` + userMessage + `}`, invalid("missing_required_parameter", "no model"), false},
		{"an empty model", `{"model":"",` + userMessage + `}`, invalid("missing_required_parameter", "no model"), false},
		{"a model that is a number", `{"model":7}`, invalid("invalid_type", "model"), false},
		{"a model that is null", `{"model":null}`, invalid("missing_required_parameter", "model"), false},
		{"an unknown model", `{"model":"gpt-x",` + userMessage + `}`, want{404, "invalid_request_error", "model_not_found", []string{`"gpt-x"`, "m, g-*"}}, false},
		{"a provider without a model", `{"model":"up/",` + userMessage + `}`, want{404, "invalid_request_error", "model_not_found", nil}, false},
		{"an unknown provider", `{"model":"down/m",` + userMessage + `}`, want{404, "invalid_request_error", "model_not_found", nil}, false},
		{"no messages", `{"model":"m"}`, invalid("missing_required_parameter", "messages"), true},
		{"null messages", `{"model":"m","messages":null}`, invalid("missing_required_parameter", "messages"), true},
		{"empty messages", `{"model":"m","messages":[]}`, invalid("missing_required_parameter", "messages"), true},
		{"messages that are text", `{"model":"m","messages":"hi"}`, invalid("missing_required_parameter", "messages"), true},
		{"a message that is null", `{"model":"m","messages":[null]}`, invalid("missing_required_parameter", "messages[0]"), true},
		{"a message that is text", `{"model":"m","messages":[{"role":"user"},"x"]}`, invalid("invalid_type", "messages[1]"), true},
		{"a role that is a number", `{"model":"m","messages":[{"role":1}]}`, invalid("invalid_type", "messages[0]", "role"), true},
		{"content that is a number", `{"model":"m","messages":[{"role":"user","content":1}]}`, invalid("invalid_type", "messages[0].content"), true},
		{"arguments that are an object", `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":{}}}]}]}`, invalid("invalid_type", "messages[0]"), true},
		{"tools that are an object", `{"model":"m",` + userMessage + `,"tools":{}}`, invalid("invalid_type", "tools"), true},
		{"a tool that is text", `{"model":"m",` + userMessage + `,"tools":["x"]}`, invalid("invalid_type", "tools[0]"), true},
		{"stream that is text", `{"model":"m",` + userMessage + `,"stream":"yes"}`, invalid("invalid_type", "stream"), true},
		{"stream options that are a list", `{"model":"m",` + userMessage + `,"stream_options":[]}`, invalid("invalid_type", "stream_options"), true},
		{"two answers", `{"model":"m",` + userMessage + `,"n":2}`, invalid("unsupported_value", "turnpike-mcp-disabled"), true},
		{"1e400 answers", `{"model":"m",` + userMessage + `,"n":1e400}`, invalid("invalid_type", "n"), true},
		{"half an answer", `{"model":"m",` + userMessage + `,"n":1.5}`, invalid("invalid_type", "n"), true},
		{"a tool named like one of the gateway", `{"model":"m",` + userMessage + `,"tools":[{"type":"function","function":{"name":"echo"}}]}`, // A16
			want{422, "invalid_request_error", "tool_name_conflict", []string{`"echo"`, `"s"`, "conflicts with"}}, true},
	} {
		gateways := map[string]*Gateway{"loop": on}
		if !tt.loop {
			gateways["relay"] = off
		}
		for name, g := range gateways {
			t.Run(tt.name+", "+name, func(t *testing.T) {
				before := len(up.Requests())
				got := g.Post(tt.body)
				e := got.Fault(t)
				code := ""
				if e.Error.Code != nil {
					code = *e.Error.Code
				}
				if got.Status != tt.want.status || e.Error.Type != tt.want.kind || code != tt.want.code {
					t.Errorf("status %d: %s", got.Status, got.Body)
				}
				for _, word := range tt.want.says {
					if !strings.Contains(e.Error.Message, word) {
						t.Errorf("%q does not say %q", e.Error.Message, word)
					}
				}
				if got.Header.Get("Content-Type") != "application/json" || !bytes.HasSuffix(got.Body, []byte("}\n")) {
					t.Errorf("content type %q, %q", got.Header.Get("Content-Type"), got.Body)
				}
				if len(up.Requests()) != before {
					t.Error("the upstream was asked")
				}
			})
		}
	}
}

func TestWhoMayAskWhat(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	for _, tt := range []struct {
		name, method, path, authorization string
		status                            int
		code                              string
	}{
		{"no key", "POST", "/v1/chat/completions", "", 401, "invalid_api_key"},
		{"an unknown key", "POST", "/v1/chat/completions", "Bearer nobody", 401, "invalid_api_key"},
		{"an empty key", "POST", "/v1/chat/completions", "Bearer ", 401, "invalid_api_key"},
		{"a password", "POST", "/v1/chat/completions", "Basic owner-key", 401, "invalid_api_key"},
		{"a key without a scheme", "POST", "/v1/chat/completions", "owner-key", 401, "invalid_api_key"},
		{"a key with something behind it", "POST", "/v1/chat/completions", "Bearer owner-key x", 401, "invalid_api_key"},
		{"a scheme in lower case", "POST", "/v1/chat/completions", "bearer owner-key", 200, ""},
		{"an admin", "POST", "/v1/chat/completions", "Bearer admin-key", 200, ""},
		{"a member", "POST", "/v1/chat/completions", "Bearer member-key", 200, ""},
		{"an approver", "POST", "/v1/chat/completions", "Bearer approver-key", 403, "role_not_allowed"},
		{"a reader", "POST", "/v1/chat/completions", "Bearer reader-key", 403, "role_not_allowed"},
		{"a reader lists the models", "GET", "/v1/models", "Bearer reader-key", 200, ""},
		{"nobody lists the models", "GET", "/v1/models", "", 401, "invalid_api_key"},
		{"a model", "GET", "/v1/models/m", "Bearer owner-key", 200, ""},
		{"a model with a slash", "GET", "/v1/models/up/x/y", "Bearer owner-key", 200, ""},
		{"an unknown model", "GET", "/v1/models/zzz", "Bearer owner-key", 404, "model_not_found"},
		{"another path", "POST", "/v1/rerank", "Bearer owner-key", 404, "not_found"},
		{"a path that only begins right", "POST", "/v1/chat/completions/x", "Bearer owner-key", 404, "not_found"},
		{"the root", "GET", "/", "", 404, "not_found"},
		{"reading completions", "GET", "/v1/chat/completions", "Bearer owner-key", 405, "method_not_allowed"},
		{"deleting completions", "DELETE", "/v1/chat/completions", "Bearer owner-key", 405, "method_not_allowed"},
		{"writing models", "POST", "/v1/models", "Bearer owner-key", 405, "method_not_allowed"},
		{"deleting a model", "DELETE", "/v1/models/m", "Bearer owner-key", 405, "method_not_allowed"},
		{"health needs no key", "GET", "/healthz", "", 200, ""},
		{"readiness needs no key", "GET", "/readyz", "", 200, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := g.Send(tt.method, tt.path, strings.NewReader(Question), "Authorization", tt.authorization)
			if got.Status != tt.status {
				t.Fatalf("status %d: %.300s", got.Status, got.Body)
			}
			if tt.status >= 400 {
				if e := got.Fault(t); e.Error.Code == nil || *e.Error.Code != tt.code {
					t.Errorf("%s", got.Body)
				}
			}
			if tt.status == 405 && got.Header.Get("Allow") == "" {
				t.Error("no Allow header")
			}
		})
	}
}

func TestABodyOverTheLimitIsRefused(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	body := func(size int) []byte {
		front, back := `{"model":"m","x":"`, `"}`
		return []byte(front + strings.Repeat("x", size-len(front)-len(back)) + back)
	}
	for _, tt := range []struct {
		name    string
		size    int
		chunked bool
		status  int
	}{
		{"at the limit, declared", maxBody, false, 200},
		{"at the limit, in chunks", maxBody, true, 200},
		{"one over, declared", maxBody + 1, false, 413},
		{"one over, in chunks", maxBody + 1, true, 413},
		{"three times, declared", 3 * maxBody, false, 413},
		{"three times, in chunks", 3 * maxBody, true, 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var src io.Reader = bytes.NewReader(body(tt.size))
			if tt.chunked {
				src = struct{ io.Reader }{src}
			}
			got := g.Send("POST", "/v1/chat/completions", src)
			if got.Status != tt.status {
				t.Fatalf("status %d: %.300s", got.Status, got.Body)
			}
			if tt.status == 413 {
				if e := got.Fault(t); *e.Error.Code != "request_too_large" || !strings.Contains(e.Error.Message, "10485760") {
					t.Errorf("%s", got.Body)
				}
			}
		})
	}
}

// A client that waits for "100 Continue" has not sent the body: it should learn
// that it need not.
func TestABodyThatIsDeclaredTooLargeIsNotAskedFor(t *testing.T) {
	NoLeaks(t)
	g := MustRun(t, Site{Upstream: "http://127.0.0.1:1"}.Yaml())
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer owner-key\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", 2*maxBody)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "413") {
		t.Errorf("the first line of the answer is %q (%v), want 413", line, err)
	}
}

func TestABodyThatIsCutIsNoRequest(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	g := MustRun(t, Site{Upstream: up.URL}.Yaml())
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer owner-key\r\nContent-Length: %d\r\n\r\n%s", len(Question)+5, Question)
	_ = conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 400 || len(up.Requests()) != 0 {
		t.Errorf("status %d, the upstream got %d requests", resp.StatusCode, len(up.Requests()))
	}
}

// What the provider says of a failure reaches the client: its status, its body
// and how long to wait.
func TestTheProvidersErrorIsTheClients(t *testing.T) {
	NoLeaks(t)
	const body = `{"error":{"message":"slow down","type":"requests","param":null,"code":"rate_limit_exceeded"},"more":1}`
	status := 0
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.Header().Set("X-Request-Id", "req_1")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	gateways := map[string]*Gateway{
		"loop":  MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml()),
		"relay": MustRun(t, Site{Upstream: up.URL}.Yaml()),
	}
	for name, g := range gateways {
		for _, status = range []int{400, 401, 402, 403, 404, 409, 422, 429, 500, 503, 529} {
			if status == 401 && name == "loop" {
				continue // the gateway's key, not the client's: upstream_credential_refused
			}
			for _, request := range []string{Question, StreamedQuestion} {
				t.Run(fmt.Sprintf("%d, %s, stream %t", status, name, request == StreamedQuestion), func(t *testing.T) {
					got := g.Post(request)
					if got.Status != status || string(got.Body) != body {
						t.Errorf("status %d: %s", got.Status, got.Body)
					}
					if got.Header.Get("Retry-After") != "7" || got.Header.Get("X-Request-Id") != "req_1" || got.Header.Get("Set-Cookie") != "" {
						t.Errorf("header %v", got.Header)
					}
				})
			}
		}
	}
}

func TestAProviderThatIsNotThereIs502(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	for name, g := range map[string]*Gateway{
		"loop":  MustRun(t, Site{Upstream: ClosedURL, Servers: []string{Server("s", tools.URL)}}.Yaml()),
		"relay": MustRun(t, Site{Upstream: ClosedURL}.Yaml()),
	} {
		t.Run(name, func(t *testing.T) {
			got := g.Post(Question)
			if e := got.Fault(t); got.Status != 502 || !strings.Contains(e.Error.Message, "could not be reached") || strings.Contains(e.Error.Message, ClosedURL) {
				t.Errorf("status %d: %s", got.Status, got.Body)
			}
		})
	}
}

// No secret of ours stands in an answer or in the log. // D18
func TestNoSecretIsToldToAnybody(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { panic(http.ErrAbortHandler) })
	tools := NewRawMCP(t, nil)
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL+"?key=CANARY-query", `headers: {Authorization: "Bearer env:TOKEN"}`)}}.Yaml())
	got := g.Post(Question)
	for where, text := range map[string]string{"answer": string(got.Body), "log": g.Log.String()} {
		if strings.Contains(text, "CANARY") || strings.Contains(text, "owner-key") {
			t.Errorf("the %s holds a secret: %s", where, text)
		}
	}
}
