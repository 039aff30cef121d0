package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

type method = func(http.ResponseWriter, *http.Request, rpc)

type methods = map[string]method

// hang answers nothing until the gateway has gone.
func hang(_ http.ResponseWriter, r *http.Request, _ rpc) { <-r.Context().Done() }

// flood sends 100 MB of a result that never ends.
func flood(w http.ResponseWriter, _ *http.Request, m rpc) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"`, m.ID)
	chunk := []byte(strings.Repeat("x", 1<<20))
	for range 100 {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// die breaks off in the middle of an answer.
func die(w http.ResponseWriter, _ *http.Request, m rpc) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"te`, m.ID)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// hangTimeout is the timeout of a server that hangs in a call. Its tools must be listed within
// it, on a machine that has much to do, too.
const hangTimeout = "3s"

// timeout is short only where it is waited for.
func timeout(name string) string {
	if strings.HasSuffix(name, "hangs") {
		return "timeout: " + hangTimeout
	}
	return "timeout: 60s" // a bomb takes long to be made on a machine that has much to do
}

// Whatever a server does with a call, the model is told, the run goes on, and
// nothing is executed twice.
func TestAServerThatMisbehavesInACall(t *testing.T) {
	noLeaks(t)
	for _, tt := range []struct {
		name string
		call method
		told []string
	}{
		{"hangs", hang, []string{"did not answer within " + hangTimeout}}, // D10
		{"floods", flood, []string{"larger than 16 MiB"}},
		{"dies", die, []string{"may have been carried out"}},
		{"closes the connection", func(http.ResponseWriter, *http.Request, rpc) { panic(http.ErrAbortHandler) }, []string{"may have been carried out"}},
		{"answers nothing", func(http.ResponseWriter, *http.Request, rpc) {}, []string{"empty"}},
		{"answers a web page", func(w http.ResponseWriter, _ *http.Request, _ rpc) { fmt.Fprint(w, "<html>") }, []string{"JSON-RPC"}},
		{"answers another request", func(w http.ResponseWriter, _ *http.Request, _ rpc) {
			reply(w, rpc{ID: []byte("99999")}, `{"content":[]}`)
		}, []string{"another request"}},
		{"answers 500", func(w http.ResponseWriter, _ *http.Request, _ rpc) { http.Error(w, "oops", 500) }, []string{"500"}},
		{"answers 401", func(w http.ResponseWriter, _ *http.Request, _ rpc) { http.Error(w, "who?", http.StatusUnauthorized) }, []string{"401"}},
		{"says that it failed and no more", gives(`{"isError":true,"content":[]}`), []string{"Error: "}}, // D17
		{"sends a result that is none", gives(`{"content":7}`), []string{"unreadable"}},
		{"sends null", gives(`null`), nil},
		{"sends what is no text", gives("{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\xfeb\"}]}"), []string{"a", "b"}},
		{"sends half a surrogate", gives(`{"content":[{"type":"text","text":"a\ud800b"}]}`), []string{"a", "b"}},
		{"sends 10 MB", gives(`{"content":[{"type":"text","text":"` + strings.Repeat("é", 5<<20) + `"}]}`), []string{"…[truncated; full result is 10485760 bytes]"}}, // C11
		{"sends an event stream with a notification first", func(w http.ResponseWriter, _ *http.Request, m rpc) { // D15
			w.Header().Set("Content-Type", "text/event-stream")
			frame(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
			frame(w, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"content":[{"type":"text","text":"well"}]}}`)
		}, []string{"well"}},
		{"sends an event stream that ends too soon", func(w http.ResponseWriter, _ *http.Request, _ rpc) {
			w.Header().Set("Content-Type", "text/event-stream")
			frame(w, `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`)
		}, []string{"may have been carried out"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tools := newRawMCP(t, methods{"tools/list": gives(oneTool("echo")), "tools/call": tt.call})
			up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, timeout(tt.name))}}.yaml())
			if text, reason := g.post(question).completion(t); text != "Done." || reason != "stop" {
				t.Fatalf("%q, %s", text, reason)
			}
			told := up.requests()[1].results(t)
			if len(told) != 1 || !utf8.Valid(up.requests()[1].body) || len(told[0]) > 64<<10 {
				t.Fatalf("the model was told %.300q", told)
			}
			for _, word := range tt.told {
				if !strings.Contains(told[0], word) {
					t.Errorf("%.300q does not say %q", told[0], word)
				}
			}
			if n := len(tools.of("tools/call")); n != 1 { // D19: a call that may write is not repeated
				t.Errorf("the call was sent %d times", n)
			}
		})
	}
}

// A server that is no use in discovery is left out; the run has the others'
// tools. // D09
func TestAServerThatMisbehavesInDiscovery(t *testing.T) {
	noLeaks(t)
	for _, tt := range []struct {
		name string
		list method
		log  string
	}{
		{"hangs", hang, "mcp_server_unavailable"}, // D10
		{"floods", flood, "too large"},
		{"dies", die, "mcp_server_unavailable"},
		{"answers 500", func(w http.ResponseWriter, _ *http.Request, _ rpc) { http.Error(w, "oops", 500) }, "500"},
		{"answers nothing", func(http.ResponseWriter, *http.Request, rpc) {}, "empty"},
		{"lists numbers", gives(`{"tools":[1,2]}`), "mcp_server_no_valid_tools"},
		{"lists no tools", gives(`{"tools":[]}`), "mcp_server_no_valid_tools"}, // D08
		{"lists null", gives(`{"tools":null}`), "mcp_server_no_valid_tools"},
		{"lists a tool without a schema", gives(`{"tools":[{"name":"bad"}]}`), "mcp_tool_invalid_schema"}, // D07
		{"lists a tool with a null schema", gives(`{"tools":[{"name":"bad","inputSchema":null}]}`), "mcp_tool_invalid_schema"},
		{"lists a tool with a list for a schema", gives(`{"tools":[{"name":"bad","inputSchema":[]}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema of strings", gives(`{"tools":[{"name":"bad","inputSchema":{"type":"string"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema that is elsewhere", gives(`{"tools":[{"name":"bad","inputSchema":{"type":"object","$ref":"http://169.254.169.254/s"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema in a file", gives(`{"tools":[{"name":"bad","inputSchema":{"$ref":"file:///etc/passwd"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema that is none", gives(`{"tools":[{"name":"bad","inputSchema":{"type":"objekt"}}]}`), "mcp_tool_invalid_schema"},
		{"lists a schema too deep", gives(`{"tools":[{"name":"bad","inputSchema":` + strings.Repeat(`{"not":`, 200) + `{}` + strings.Repeat(`}`, 200) + `}]}`), "mcp_tool_invalid_schema"},
		{"gives the same cursor for ever", gives(`{"tools":[],"nextCursor":"x"}`), "repeats a cursor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bad := newRawMCP(t, methods{"tools/list": tt.list})
			good := newMCP(t, map[string]handler{"echo": echo})
			up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, servers: []string{
				server("bad", bad.URL, timeout(tt.name), "max_retries: 0"), server("good", good.URL),
			}}.yaml())
			if text, reason := g.post(question).completion(t); text != "Done." || reason != "stop" {
				t.Fatalf("%q, %s", text, reason)
			}
			if offered := string(up.requests()[0].decode(t).Tools); strings.Count(offered, `"type":"function"`) != 1 || !strings.Contains(offered, `"name":"echo"`) {
				t.Errorf("the model was offered %s", offered)
			}
			if log := g.log.String(); !strings.Contains(log, tt.log) {
				t.Errorf("the log does not say %s:\n%s", tt.log, log)
			}
		})
	}
}

// A required server that is down fails the run instead.
func TestARequiredServerThatIsDownIs503(t *testing.T) {
	noLeaks(t)
	bad := newRawMCP(t, methods{"tools/list": func(w http.ResponseWriter, _ *http.Request, _ rpc) { http.Error(w, "oops", 500) }})
	up := newUpstream(t, script(says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("bad", bad.URL, "required: true", "max_retries: 0")}}.yaml())
	got := g.post(question)
	if e := got.fault(t); got.status != 503 || *e.Error.Code != "server_unavailable" || !strings.Contains(e.Error.Message, `"bad" is not available; "turnpike mcp check" shows the cause`) {
		t.Errorf("status %d: %s", got.status, got.body)
	}
	if len(up.requests()) != 0 {
		t.Error("the model was asked")
	}
}

// Four floods of 100 MB cost no more memory than their limits.
func TestAFloodStaysOutOfMemory(t *testing.T) {
	alone(t)
	tools := newRawMCP(t, methods{"tools/list": gives(oneTool("echo")), "tools/call": flood})
	up := newUpstream(t, script(asks(many("echo", 4)...), says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
	measured(t, 300, func() { g.post(question).completion(t) })
}

// A forbidden address ends the whole run with 403, in discovery and in a
// call; the model hears nothing of it, and only owners and admins the address. // K04
func TestAForbiddenAddressEndsTheRun(t *testing.T) {
	noLeaks(t)
	away := func(w http.ResponseWriter, _ *http.Request, _ rpc) {
		w.Header().Set("Location", "http://169.254.169.254/latest/meta-data/")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	listing := newRawMCP(t, methods{"tools/list": away})
	calling := newRawMCP(t, methods{"tools/list": gives(oneTool("echo")), "tools/call": away})
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
		for _, role := range []string{"owner", "admin", "member"} {
			for _, request := range []string{question, streamedQuestion} {
				t.Run(fmt.Sprintf("%s, %s, stream %t", tt.name, role, request == streamedQuestion), func(t *testing.T) {
					up := newUpstream(t, script(asks(call{"echo", `{}`}).saying("Looking.")))
					g := MustRun(t, site{upstream: up.URL, allow: "127.0.0.1/32", servers: []string{server("s", tt.url)}}.yaml())
					got := g.post(request, "Authorization", "Bearer "+role+"-key")
					var e wireError
					if tt.spoken && request == streamedQuestion {
						s := got.stream(t)
						if s.done != 1 || len(s.errors) != 1 || len(s.reasons) != 0 {
							t.Fatalf("%+v", s)
						}
						e = answer{body: []byte(s.errors[0])}.fault(t)
					} else if e = got.fault(t); got.status != 403 {
						t.Fatalf("status %d: %s", got.status, got.body)
					}
					if e.Error.Code == nil || *e.Error.Code != "outbound_ssrf_blocked" ||
						!strings.HasPrefix(e.Error.Message, "outbound_ssrf_blocked: ssrf_blocked:"+tt.reason) {
						t.Errorf("%+v", e)
					}
					if told := tt.address != "" && strings.Contains(string(got.body), tt.address); told != (role != "member" && tt.address != "") {
						t.Errorf("the %s is told %s", role, e.Error.Message)
					}
					if len(up.requests()) != tt.modelCalls {
						t.Errorf("the model was asked %d times", len(up.requests()))
					}
				})
			}
		}
	}
}

// A redirect to a place that is not forbidden is not followed either; it is the
// server's failure.
func TestAnotherRedirectIsAFailure(t *testing.T) {
	noLeaks(t)
	elsewhere := newRawMCP(t, methods{"tools/list": gives(oneTool("echo"))})
	tools := newRawMCP(t, methods{"tools/list": gives(oneTool("echo")), "tools/call": func(w http.ResponseWriter, _ *http.Request, _ rpc) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusPermanentRedirect)
	}})
	up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL, `headers: {Authorization: "Bearer env:TOKEN"}`)}}.yaml())
	g.post(question).completion(t)
	if told := up.requests()[1].results(t); len(told) != 1 || !strings.Contains(told[0], "redirect") {
		t.Errorf("the model was told %q", told)
	}
	if n := len(elsewhere.of("")); n != 0 {
		t.Errorf("the other server got %d requests", n)
	}
}

// A server that hangs in discovery holds up its first run, and not every one
// after it.
func TestAHangingServerDoesNotHoldUpEveryRun(t *testing.T) {
	noLeaks(t)
	bad := newRawMCP(t, methods{"tools/list": hang, "initialize": hang, "server/discover": hang})
	up := newUpstream(t, script(says("Done.")))
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("bad", bad.URL, "timeout: 500ms")}}.yaml())
	g.post(question).completion(t)
	first := len(bad.of(""))
	for range 3 {
		g.post(question).completion(t)
	}
	if all := len(bad.of("")); first == 0 || all >= 2*first {
		t.Errorf("the first run sent %d requests, and all four %d: the others asked the server again", first, all)
	}
}
