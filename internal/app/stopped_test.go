package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// missingServers is the header that names the servers whose tools a run does not have.
const missingServers = "Turnpike-Missing-Servers"

// A server that stops is seen in every place where someone looks for it.
func TestAStoppedServerIsVisible(t *testing.T) { // P61
	alone(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"echo", `{"n":1}`}).write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	other := newMCP(t, map[string]handler{"other": echo})
	d := manage(MustRun(t, site{
		upstream: up.URL, servers: []string{server("tools", tools.URL+"/mcp"), server("other", other.URL+"/mcp")},
	}.yaml()+"\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"))
	state := func() string {
		return d.do("GET", "/api/mcp-servers/tools", "owner-key", "", 200)["status"].(map[string]any)["state"].(string)
	}
	if a := d.post(chatBody); a.status != 200 || a.header.Get(missingServers) != "" || state() != "connected" {
		t.Fatalf("while the server serves: %d, missing %q, status %s: %s", a.status, a.header.Get(missingServers), state(), a.body)
	}
	tools.CloseClientConnections()
	tools.Close()

	d.post(chatBody) // its call finds the server stopped
	if got := state(); got != "failed" {
		t.Errorf("after a call could not reach it, the server has the status %s", got)
	}
	for _, body := range []string{chatBody, strings.Replace(chatBody, "{", `{"stream":true,`, 1)} {
		if a := d.post(body); a.status != 200 || a.header.Get(missingServers) != "tools" {
			t.Errorf("the next request: %d with the header %q: %s", a.status, a.header.Get(missingServers), a.body)
		}
	}
	if got := up.last(); !strings.Contains(got, "not available now: tools") {
		t.Errorf("the model reads %s", got)
	}
	var list struct {
		Data []struct {
			Tools   int `json:"mcp_tools_count"`
			Servers int `json:"mcp_servers_connected"`
		}
	}
	if err := json.Unmarshal(d.send("GET", "/v1/models", nil).body, &list); err != nil {
		t.Fatal(err)
	}
	if m := list.Data[0]; m.Tools != 1 || m.Servers != 1 {
		t.Errorf("the list of models says %+v", m)
	}
	states := scrape(t, d.gateway)
	if up, other := states["turnpike_mcp_server_up{org=o,server=tools}"], states["turnpike_mcp_server_up{org=o,server=other}"]; up != 0 || other != 1 {
		t.Errorf("the gauge of the server is %v, of the other %v", up, other)
	}
	if _, ok := states["turnpike_mcp_server_up{org=o,server=tools}"]; !ok {
		t.Error("the server has no gauge")
	}
	if n := strings.Count(d.log.String(), "mcp_server_unavailable"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, d.log.String())
	}
}

// The same of a server that a request declares: its client reads it, and the log says it once. // P61
func TestAStoppedServerOfARequestIsVisible(t *testing.T) {
	alone(t)
	p := newParitySite(t, "openai", "call c1 read {}\n\ntext One.\n\ncall c2 read {}\n\ntext Two.\n\ntext Three.", "")
	ask := func() (answer, respObject) {
		a := p.respond(`"input":"go","tools":[` + p.docsTool(never) + `]`)
		return a, a.responded(t)
	}
	if _, o := ask(); o.text() != "One." {
		t.Fatalf("%+v", o)
	}
	p.docs.Close()
	if _, o := ask(); len(o.of("mcp_call")) != 1 || o.of("mcp_call")[0].Error == nil {
		t.Errorf("a call that could not reach the server is %+v", o.Output)
	}
	a, o := ask()
	if lists := o.of("mcp_list_tools"); len(lists) != 1 || lists[0].Error == nil {
		t.Errorf("the next request: %s", a.body)
	}
	if n := strings.Count(p.log.String(), "mcp_server_unavailable"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, p.log.String())
	}
}
