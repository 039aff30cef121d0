package chat_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// flood sends 100 MB of a result that never ends.
func flood(w http.ResponseWriter, _ *http.Request, m RPC) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID)
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 100 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// Whatever a server does with a call, the model is told, the run goes on, and
// nothing is executed twice.
func TestAServerThatMisbehavesInACall(t *testing.T) {
	NoLeaks(t)
	for _, tt := range []struct {
		name string
		call Method
		told []string
	}{
		{"floods", flood, []string{"larger than 16 MiB"}},
		{"dies", Die, []string{"may have been carried out"}},
		{"closes the connection", func(http.ResponseWriter, *http.Request, RPC) { panic(http.ErrAbortHandler) }, []string{"may have been carried out"}},
		{"answers nothing", func(http.ResponseWriter, *http.Request, RPC) {}, []string{"empty"}},
		{"answers a web page", func(w http.ResponseWriter, _ *http.Request, _ RPC) { fmt.Fprint(w, "<html>") }, []string{"JSON-RPC"}},
		{"answers another request", func(w http.ResponseWriter, _ *http.Request, _ RPC) {
			Reply(w, RPC{ID: []byte("99999")}, `{"content":[]}`)
		}, []string{"another request"}},
		{"answers 500", func(w http.ResponseWriter, _ *http.Request, _ RPC) { http.Error(w, "oops", 500) }, []string{"500"}},
		{"answers 401", func(w http.ResponseWriter, _ *http.Request, _ RPC) { http.Error(w, "who?", http.StatusUnauthorized) }, []string{"401"}},
		{"says that it failed and no more", Gives(`{"isError":true,"content":[]}`), []string{"Error: "}}, // D17
		{"sends a result that is none", Gives(`{"content":7}`), []string{"unreadable"}},
		{"sends null", Gives(`null`), nil},
		{"sends what is no text", Gives("{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\xfeb\"}]}"), []string{"a", "b"}},
		{"sends half a surrogate", Gives(`{"content":[{"type":"text","text":"a\ud800b"}]}`), []string{"a", "b"}},
		{"sends 10 MB", Gives(`{"content":[{"type":"text","text":"` + strings.Repeat("é", 5<<20) + `"}]}`), []string{"…[truncated; full result is 10485760 bytes]"}}, // C11
		{"sends an event stream with a notification first", func(w http.ResponseWriter, _ *http.Request, m RPC) { // D15
			w.Header().Set("Content-Type", "text/event-stream")
			Frame(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
			Frame(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[{"type":"text","text":"well"}]}}`)
		}, []string{"well"}},
		{"sends an event stream that ends too soon", func(w http.ResponseWriter, _ *http.Request, _ RPC) {
			w.Header().Set("Content-Type", "text/event-stream")
			Frame(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
		}, []string{"may have been carried out"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": tt.call})
			up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, "timeout: 60s")}}.Yaml())
			if text, reason := g.Post(Question).Completion(t); text != "Done." || reason != "stop" {
				t.Fatalf("%q, %s", text, reason)
			}
			told := up.Requests()[1].Results(t)
			if len(told) != 1 || !utf8.Valid(up.Requests()[1].Body) || len(told[0]) > 64<<10 {
				t.Fatalf("the model was told %.300q", told)
			}
			for _, word := range tt.told {
				if !strings.Contains(told[0], word) {
					t.Errorf("%.300q does not say %q", told[0], word)
				}
			}
			if n := len(tools.Of("tools/call")); n != 1 { // D19: a call that may write is not repeated
				t.Errorf("the call was sent %d times", n)
			}
		})
	}
}

// A server that is no use in discovery is left out; the run has the others'
// tools. // D09
func TestAServerThatMisbehavesInDiscovery(t *testing.T) {
	NoLeaks(t)
	for _, tt := range []struct {
		name string
		list Method
		log  string
	}{
		{"hangs", Hang, "mcp_server_unavailable"}, // D10
		{"floods", flood, "too large"},
		{"dies", Die, "mcp_server_unavailable"},
		{"answers 500", func(w http.ResponseWriter, _ *http.Request, _ RPC) { http.Error(w, "oops", 500) }, "500"},
		{"answers nothing", func(http.ResponseWriter, *http.Request, RPC) {}, "empty"},
		{"lists numbers", Gives(`{"tools":[1,2]}`), "mcp_server_no_valid_tools"},
		{"lists no tools", Gives(`{"tools":[]}`), "mcp_server_no_valid_tools"}, // D08
		{"lists null", Gives(`{"tools":null}`), "mcp_server_no_valid_tools"},
		{"lists a tool without a schema", Gives(`{"tools":[{"name":"bad"}]}`), "mcp_tool_invalid_schema"}, // D07
		{"lists a tool with a null schema", Gives(`{"tools":[{"name":"bad","inputSchema":null}]}`), "mcp_tool_invalid_schema"},
		{"lists a tool with a list for a schema", Gives(`{"tools":[{"name":"bad","inputSchema":[]}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema of strings", Gives(`{"tools":[{"name":"bad","inputSchema":{"type":"string"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema that is elsewhere", Gives(`{"tools":[{"name":"bad","inputSchema":{"type":"object","$ref":"http://169.254.169.254/s"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema in a file", Gives(`{"tools":[{"name":"bad","inputSchema":{"$ref":"file:///etc/passwd"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema that is none", Gives(`{"tools":[{"name":"bad","inputSchema":{"type":"objekt"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema too deep", Gives(`{"tools":[{"name":"bad","inputSchema":` + strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 200) + `}]}`), "mcp_tool_invalid_schema"},
		{"gives the same cursor for ever", Gives(`{"tools":[],"nextCursor":"x"}`), "repeats a cursor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			timeout := "timeout: 60s"
			if tt.name == "hangs" {
				timeout = "timeout: 100ms" // nothing of this server has to be in time
			}
			bad := NewRawMCP(t, Methods{"tools/list": tt.list})
			good := NewMCP(t, map[string]Handler{"echo": Echo})
			up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{
				Server("bad", bad.URL, timeout, "max_retries: 0"), Server("good", good.URL),
			}}.Yaml())
			if text, reason := g.Post(Question).Completion(t); text != "Done." || reason != "stop" {
				t.Fatalf("%q, %s", text, reason)
			}
			if offered := string(up.Requests()[0].Decode(t).Tools); strings.Count(offered, `"type":"function"`) != 1 || !strings.Contains(offered, `"name":"echo"`) {
				t.Errorf("the model was offered %s", offered)
			}
			if log := g.Log.String(); !strings.Contains(log, tt.log) {
				t.Errorf("the log does not say %s:\n%s", tt.log, log)
			}
		})
	}
}

// A required server that is down fails the run instead.
func TestARequiredServerThatIsDownIs503(t *testing.T) {
	NoLeaks(t)
	bad := NewRawMCP(t, Methods{"tools/list": func(w http.ResponseWriter, _ *http.Request, _ RPC) { http.Error(w, "oops", 500) }})
	up := NewUpstream(t, Script(Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("bad", bad.URL, "required: true", "max_retries: 0")}}.Yaml())
	got := g.Post(Question)
	if e := got.Fault(t); got.Status != 503 || *e.Error.Code != "server_unavailable" || !strings.Contains(e.Error.Message, `"bad" is not available; "turnpike mcp check" shows the cause`) {
		t.Errorf("status %d: %s", got.Status, got.Body)
	}
	if len(up.Requests()) != 0 {
		t.Error("the model was asked")
	}
}

// Four floods of 100 MB cost no more memory than their limits.
func TestAFloodStaysOutOfMemory(t *testing.T) {
	Alone(t)
	tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": flood})
	up := NewUpstream(t, Script(Asks(many("echo", 4)...), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	Measured(t, 300, func() { g.Post(Question).Completion(t) })
}

// A forbidden address ends the whole run with 403, in discovery and in a
// call; the model hears nothing of it, and only owners and admins the address. // K04
func TestAForbiddenAddressEndsTheRun(t *testing.T) {
	NoLeaks(t)
	away := func(w http.ResponseWriter, _ *http.Request, _ RPC) {
		w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	listing := NewRawMCP(t, Methods{"tools/list": away})
	calling := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": away})
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		Asks(Use("echo", `{}`)).Saying("Looking.").Write(w)
	})
	for _, tt := range []struct {
		name, url, reason, address string
		modelCalls                 int
		spoken                     bool
	}{
		{"a private address", "http://10.1.2.3/mcp", "private", "10.1.2.3", 0, false},
		{"a loopback address that is not allowed", "http://127.0.0.2:8080/mcp", "loopback", "127.0.0.2", 0, false},
		{"the metadata service", "http://169.254.169.254/mcp", "metadata", "169.254.169.254", 0, false},
		{"an IPv6 form of loopback", "http://[::ffff:127.0.0.2]:8080/mcp", "loopback", "127.0.0.2", 0, false},
		{"a number for a name", "http://2130706433/mcp", "ip_literal", "", 0, false},
		{"a redirect in discovery", listing.URL, "redirect", "169.254.169.254", 0, false},
		{"a redirect in a call", calling.URL, "redirect", "169.254.169.254", 1, true},
	} {
		g := MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("s", tt.url)}}.Yaml())
		for _, role := range []string{"member", "admin", "owner"} {
			for _, request := range []string{Question, StreamedQuestion} {
				t.Run(fmt.Sprintf("%s, %s, stream %t", tt.name, role, request == StreamedQuestion), func(t *testing.T) {
					up.Forget()
					got := g.Post(request, "Authorization", "Bearer "+role+"-key")
					var e WireError
					if tt.spoken && request == StreamedQuestion {
						s := got.Stream(t)
						if s.Done != 1 || len(s.Errors) != 1 || len(s.Reasons) != 0 {
							t.Fatalf("%+v", s)
						}
						e = Answer{Body: []byte(s.Errors[0])}.Fault(t)
					} else if e = got.Fault(t); got.Status != 403 {
						t.Fatalf("status %d: %s", got.Status, got.Body)
					}
					if e.Error.Code == nil || *e.Error.Code != "outbound_ssrf_blocked" ||
						!strings.HasPrefix(e.Error.Message, "outbound_ssrf_blocked: ssrf_blocked:"+tt.reason) {
						t.Errorf("%+v", e)
					}
					if told := tt.address != "" && strings.Contains(string(got.Body), tt.address); told != (role != "member" && tt.address != "") {
						t.Errorf("the %s is told %s", role, e.Error.Message)
					}
					if len(up.Requests()) != tt.modelCalls {
						t.Errorf("the model was asked %d times", len(up.Requests()))
					}
				})
			}
		}
	}
}

// A redirect to a place that is not forbidden is not followed either; it is the
// server's failure.
func TestAnotherRedirectIsAFailure(t *testing.T) {
	NoLeaks(t)
	elsewhere := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo"))})
	tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": func(w http.ResponseWriter, _ *http.Request, _ RPC) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusPermanentRedirect)
	}})
	up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL, `headers: {Authorization: "Bearer env:TOKEN"}`)}}.Yaml())
	g.Post(Question).Completion(t)
	if told := up.Requests()[1].Results(t); len(told) != 1 || !strings.Contains(told[0], "redirect") {
		t.Errorf("the model was told %q", told)
	}
	if n := len(elsewhere.Of("")); n != 0 {
		t.Errorf("the other server got %d requests", n)
	}
}

// A server that hangs in discovery holds up its first run, and not every one
// after it.
func TestAHangingServerDoesNotHoldUpEveryRun(t *testing.T) {
	NoLeaks(t)
	bad := NewRawMCP(t, Methods{"tools/list": Hang, "initialize": Hang, "server/discover": Hang})
	up := NewUpstream(t, Script(Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("bad", bad.URL, "timeout: 500ms")}}.Yaml())
	g.Post(Question).Completion(t)
	first := len(bad.Of(""))
	for range 3 {
		g.Post(Question).Completion(t)
	}
	if all := len(bad.Of("")); first == 0 || all >= 2*first {
		t.Errorf("the first run sent %d requests, and all four %d: the others asked the server again", first, all)
	}
}
