package mcpserver_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// forbidden listens where the gateway may not connect to, on the port of url,
// and counts who does. It returns nil where the machine has no such address.
func forbidden(t *testing.T, url string) *atomic.Int64 {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	l, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("this machine has one loopback address: %v", err)
	}
	reached, ended := new(atomic.Int64), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return reached
}

// named returns the URL of a server with a name in place of its address.
func named(url, name string) string { return strings.Replace(url, "127.0.0.1", name, 1) }

// The name of a server is resolved once, through real packets,
// and one forbidden answer ends the run before anything is connected to. // K01 K04 P06
func TestANameThatLeadsInsideEndsTheRun(t *testing.T) {
	Alone(t)
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("8.8.4.%d", i)
	}
	NewNameserver(t, map[string][]string{
		"private.example.com": {"10.0.0.1"}, "mixed.example.com": {"127.0.0.1", "127.0.0.2"}, "inside.example.com": {"127.0.0.2"},
		"public-and-private.example.com": {"8.8.8.8", "192.168.0.1"}, "six.example.com": {"fd12::1"}, "both.example.com": {"8.8.8.8", "::ffff:10.0.0.1"},
		"alias.example.com": {"alias2.example.com"}, "alias2.example.com": {"db.corp"}, "db.corp": {"10.0.0.5"},
		"meta.example.com": {"169.254.169.254"}, "many.example.com": many, "nat64.example.com": {"64:ff9b::a9fe:a9fe"},
	})
	for host, reason := range map[string]string{
		"private": "private", "mixed": "loopback", "inside": "loopback", "public-and-private": "private", "six": "ula", "both": "private",
		"alias": "private", "meta": "metadata", "many": "too_many_addresses", "nat64": "nat64",
	} {
		t.Run(host, func(t *testing.T) {
			tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo"))})
			reached := forbidden(t, tools.URL)
			up := NewUpstream(t, Script(Says("Done.")))
			url := named(tools.URL, host+".example.com")
			g := MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("s", url)}}.Yaml())
			got := g.Post(Question)
			e := got.Fault(t)
			if got.Status != 403 || *e.Error.Code != "outbound_ssrf_blocked" || !strings.HasPrefix(e.Error.Message, "outbound_ssrf_blocked: ssrf_blocked:"+reason) {
				t.Errorf("status %d: %s", got.Status, got.Body)
			}
			if reached.Load() != 0 || len(tools.Of("")) != 0 || len(up.Requests()) != 0 {
				t.Errorf("%d forbidden connections, %d requests to the server, %d to the model", reached.Load(), len(tools.Of("")), len(up.Requests()))
			}
		})
	}
}

// A name that was harmless when the tools were listed, and leads inside when
// one is called. // K01
func TestANameThatChangesBetweenTwoConnectionsEndsTheRun(t *testing.T) {
	Alone(t)
	for _, answers := range [][]string{{"127.0.0.2"}, {"127.0.0.1", "127.0.0.2"}, {"::ffff:127.0.0.2"}, {"10.0.0.1"}} {
		t.Run(strings.Join(answers, " and "), func(t *testing.T) {
			dns := NewNameserver(t, map[string][]string{"flip.example.com": {"127.0.0.1"}})
			tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": Gives(`{"content":[]}`)})
			tools.Config.SetKeepAlivesEnabled(false) // each request needs a connection, and each connection a lookup
			reached := forbidden(t, tools.URL)
			turns := Script(Asks(Use("echo", `{}`)), Says("Done."))
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
				dns.Set("flip.example.com", answers...)
				turns(w, r, got)
			})
			url := named(tools.URL, "flip.example.com")
			g := MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("s", url)}}.Yaml())
			got := g.Post(Question)
			if e := got.Fault(t); got.Status != 403 || *e.Error.Code != "outbound_ssrf_blocked" {
				t.Errorf("status %d: %s", got.Status, got.Body)
			}
			if n := len(tools.Of("tools/call")); n != 0 || reached.Load() != 0 || len(up.Requests()) != 1 {
				t.Errorf("%d calls, %d forbidden connections, %d requests to the model", n, reached.Load(), len(up.Requests()))
			}
		})
	}
}

// The allow-list opens names of the inner network too. // K03
func TestAClusterNameInsideTheAllowListWorks(t *testing.T) {
	Alone(t)
	NewNameserver(t, map[string][]string{"tools.svc.cluster.local": {"127.0.0.1"}, "elsewhere.svc.cluster.local": {"127.0.0.2"}})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	for name, status := range map[string]int{"tools": 200, "elsewhere": 403} {
		up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
		url := named(tools.URL, name+".svc.cluster.local")
		g := MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("s", url)}}.Yaml())
		if got := g.Post(Question); got.Status != status {
			t.Errorf("%s: status %d: %s", name, got.Status, got.Body)
		}
	}
}

// What a caller reads of an inner name is the same whether it exists or not,
// and a member is not told where a public one leads. // P06
func TestARefusalIsNoWayToAskTheInnerResolver(t *testing.T) {
	Alone(t)
	dns := NewNameserver(t, map[string][]string{})
	up := NewUpstream(t, Script(Says("Done.")))
	for name, cases := range map[string]struct {
		roles   []string
		answers [][]string
	}{
		"vault.corp":        {[]string{"owner", "member"}, [][]string{nil, {"10.9.9.9"}, {"8.8.8.8"}, {"127.0.0.2"}, {"fd00:ec2::254"}}},
		"vault.example.com": {[]string{"member"}, [][]string{{"10.9.9.9"}, {"192.168.3.4"}, {"8.8.8.8", "172.16.0.1"}}},
	} {
		g := MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("s", "http://"+name+":8000/mcp")}}.Yaml())
		for _, role := range cases.roles {
			var first Answer
			for i, answers := range cases.answers {
				dns.Set(name, answers...)
				got := g.Post(Question, "Authorization", "Bearer "+role+"-key")
				if i == 0 {
					first = got
				}
				if got.Status != 403 || !bytes.Equal(got.Body, first.Body) {
					t.Errorf("%s, %s, %v: status %d: %s, and for %v: %s", name, role, answers, got.Status, got.Body, cases.answers[0], first.Body)
				}
			}
		}
	}
}

// A name that nobody answers for is a server that is down, and no more.
func TestANameWithoutAnAnswerIsAServerThatIsDown(t *testing.T) {
	Alone(t)
	NewNameserver(t, map[string][]string{"slow.example.com": {Silence}})
	for _, name := range []string{"slow.example.com", "nosuch.example.com"} {
		up := NewUpstream(t, Script(Says("Done.")))
		s := Server("s", "http://"+name+":8000/mcp", "timeout: 400ms", "max_retries: 0")
		g := MustRun(t, Site{Upstream: up.URL, Servers: []string{s}}.Yaml())
		if text, _ := g.Post(Question).Completion(t); text != "Done." {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// A server of an agent, or of the org, that passes when it is stored and is refused at a run ends the run: before
// the first byte with 403, and afterwards with the same code in the form of the surface. // K04
func TestARefusalHasTheSameCodeBeforeAndAfterTheFirstByte(t *testing.T) {
	Alone(t)
	const name = "flip.example.com"
	dns := NewNameserver(t, map[string][]string{name: {"127.0.0.2"}})
	tools := NewRawMCP(t, Methods{"tools/list": Gives(OneTool("echo")), "tools/call": Gives(`{"content":[]}`)})
	tools.Config.SetKeepAlivesEnabled(false) // each request needs a connection, and each connection a lookup
	reached := forbidden(t, tools.URL)
	asked := "echo"
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		dns.Set(name, "127.0.0.2")
		Asks(Use(asked, `{}`)).Write(w)
	})
	url := named(tools.URL, name)
	d := Manage(MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("s", url)}}.Yaml()))
	id := d.NewAgent(`,"mcp_servers":[{"name":"s","url":"` + url + `"}]`)
	for _, surface := range []struct{ path, body, tool, failed string }{
		{"/api/agents/" + id + "/run/stream", `{"message":"go"}`, "mcp__s__echo", `"status":"failed"`},
		{"/v1/responses", `{"model":"m","input":"go","stream":true,"tools":[{"type":"mcp","server_label":"s","require_approval":"never"}]}`, "echo", "response.failed"},
	} {
		asked = surface.tool
		dns.Set(name, "127.0.0.2")
		calls := len(up.Requests())
		before := d.Send("POST", surface.path, strings.NewReader(surface.body), "Authorization", "Bearer owner-key")
		if before.Status != 403 || !strings.Contains(string(before.Body), `"code":"outbound_ssrf_blocked"`) || !strings.Contains(string(before.Body), "ssrf_blocked:loopback:127.0.0.2") || len(up.Requests()) != calls {
			t.Errorf("%s before the first byte: %d %s", surface.path, before.Status, before.Body)
		}
		dns.Set(name, "127.0.0.1")
		after := d.Send("POST", surface.path, strings.NewReader(surface.body), "Authorization", "Bearer owner-key")
		if text := string(after.Body); after.Status != 200 || !strings.Contains(text, `"code":"outbound_ssrf_blocked"`) || !strings.Contains(text, surface.failed) || len(up.Requests()) != calls+1 {
			t.Errorf("%s after the first byte: %d %s", surface.path, after.Status, text)
		}
	}
	if n := len(tools.Of("tools/call")); n != 0 || reached.Load() != 0 {
		t.Errorf("%d calls, %d forbidden connections", n, reached.Load())
	}
}
