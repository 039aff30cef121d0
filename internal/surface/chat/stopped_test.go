package chat_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// missingServers is the header that names the servers whose tools a run does not have.
const missingServers = "Turnpike-Missing-Servers"

// A server that stops is seen in every place where someone looks for it.
func TestAStoppedServerIsVisible(t *testing.T) { // P61
	Alone(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("echo", `{"n":1}`)).Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	other := NewMCP(t, map[string]Handler{"other": Echo})
	d := Manage(MustRun(t, Site{
		Upstream: up.URL, Servers: []string{Server("tools", tools.URL+"/mcp"), Server("other", other.URL+"/mcp")},
	}.Yaml()+"\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"))
	state := func() string {
		return d.Do("GET", "/api/mcp-servers/tools", "owner-key", "", 200)["status"].(map[string]any)["state"].(string)
	}
	if a := d.Post(ChatBody); a.Status != 200 || a.Header.Get(missingServers) != "" || state() != "connected" {
		t.Fatalf("while the server serves: %d, missing %q, status %s: %s", a.Status, a.Header.Get(missingServers), state(), a.Body)
	}
	tools.CloseClientConnections()
	tools.Close()

	d.Post(ChatBody) // its call finds the server stopped
	if got := state(); got != "failed" {
		t.Errorf("after a call could not reach it, the server has the status %s", got)
	}
	for _, body := range []string{ChatBody, strings.Replace(ChatBody, "{", `{"stream":true,`, 1)} {
		if a := d.Post(body); a.Status != 200 || a.Header.Get(missingServers) != "tools" {
			t.Errorf("the next request: %d with the header %q: %s", a.Status, a.Header.Get(missingServers), a.Body)
		}
	}
	if got := up.Last(); !strings.Contains(got, "not available now: tools") {
		t.Errorf("the model reads %s", got)
	}
	var list struct {
		Data []struct {
			Tools   int `json:"mcp_tools_count"`
			Servers int `json:"mcp_servers_connected"`
		}
	}
	if err := json.Unmarshal(d.Send("GET", "/v1/models", nil).Body, &list); err != nil {
		t.Fatal(err)
	}
	if m := list.Data[0]; m.Tools != 1 || m.Servers != 1 {
		t.Errorf("the list of models says %+v", m)
	}
	states := Scrape(t, d.Gateway)
	if up, other := states["turnpike_mcp_server_up{org=o,server=tools}"], states["turnpike_mcp_server_up{org=o,server=other}"]; up != 0 || other != 1 {
		t.Errorf("the gauge of the server is %v, of the other %v", up, other)
	}
	if _, ok := states["turnpike_mcp_server_up{org=o,server=tools}"]; !ok {
		t.Error("the server has no gauge")
	}
	if n := strings.Count(d.Log.String(), "mcp_server_unavailable"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, d.Log.String())
	}
}

// The same of a server that a request declares: its client reads it, and the log says it once. // P61
func TestAStoppedServerOfARequestIsVisible(t *testing.T) {
	Alone(t)
	p := NewParitySite(t, "openai", "call c1 read {}\n\ntext One.\n\ncall c2 read {}\n\ntext Two.\n\ntext Three.", "")
	ask := func() (Answer, RespObject) {
		a := p.Respond(`"input":"go","tools":[` + p.DocsTool(Never) + `]`)
		return a, a.Responded(t)
	}
	if _, o := ask(); o.Text() != "One." {
		t.Fatalf("%+v", o)
	}
	p.Docs.Close()
	if _, o := ask(); len(o.Of("mcp_call")) != 1 || o.Of("mcp_call")[0].Error == nil {
		t.Errorf("a call that could not reach the server is %+v", o.Output)
	}
	a, o := ask()
	if lists := o.Of("mcp_list_tools"); len(lists) != 1 || lists[0].Error == nil {
		t.Errorf("the next request: %s", a.Body)
	}
	if n := strings.Count(p.Log.String(), "mcp_server_unavailable"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, p.Log.String())
	}
}
