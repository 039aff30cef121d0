package mcptool

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/tool"
)

// initialized answers initialize with these members beside protocolVersion.
func initialized(members string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		result(w, asked(r).id, `{"protocolVersion":"2025-11-25",`+members+`}`)
	}
}

func TestAHandshakeThatIsSlightlyWrong(t *testing.T) { // D15
	const info = `"serverInfo":{"name":"fake","version":"1"}`
	for name, c := range map[string]struct{ members, server, version string }{
		"logging is a list":       {`"capabilities":{"tools":{},"logging":[]},` + info, "fake", "1"},
		"experimental is a list":  {`"capabilities":{"tools":{},"experimental":[]},` + info, "fake", "1"},
		"tools is a list":         {`"capabilities":{"tools":[]},` + info, "fake", "1"},
		"tools is a boolean":      {`"capabilities":{"tools":true},` + info, "fake", "1"},
		"listChanged is a text":   {`"capabilities":{"tools":{"listChanged":"yes"}},` + info, "fake", "1"},
		"capabilities is a list":  {`"capabilities":[],` + info, "fake", "1"},
		"capabilities is null":    {`"capabilities":null,` + info, "fake", "1"},
		"version is a number":     {`"capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":1.5}`, "fake", "1.5"},
		"name is null":            {`"capabilities":{"tools":{}},"serverInfo":{"name":null,"version":"1"}`, "", "1"},
		"serverInfo is a list":    {`"capabilities":{"tools":{}},"serverInfo":[]`, "", ""},
		"serverInfo is missing":   {`"capabilities":{"tools":{}}`, "", ""},
		"icons is an object":      {`"capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1","icons":{},"websiteUrl":7}`, "fake", "1"},
		"instructions is a list":  {`"capabilities":{"tools":{}},"instructions":[],` + info, "fake", "1"},
		"_meta is a list":         {`"capabilities":{"tools":{}},"_meta":[],` + info, "fake", "1"},
		"unknown and deep values": {`"capabilities":{"tools":{},"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `},"y":{},` + info, "fake", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.noInit = initialized(c.members)
			report, err := f.client().Check(t.Context())
			if err != nil || len(report.Tools) != 1 || report.ServerName != c.server || report.ServerVersion != c.version {
				t.Errorf("%+v, %v", report, err)
			}
		})
	}
}

func TestADiscoveryOfCapabilitiesThatIsSlightlyWrong(t *testing.T) { // D15: revision 2026-07-28
	f := newFake(t)
	f.override[methodDiscover] = func(w http.ResponseWriter, r *http.Request) {
		result(w, asked(r).id, `{"supportedVersions":["2026-07-28",7],"capabilities":{"tools":[],"logging":[]},"instructions":[],"ttlMs":"0",`+
			`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":2},"other":[]}}`)
	}
	report, err := f.client().Check(t.Context())
	if err != nil || report.Protocol != statelessVersion || report.ServerVersion != "2" || len(report.Tools) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestAnHandshakeThatCannotBeUnderstoodIsDescribedWithoutGoTypes(t *testing.T) {
	for name, members := range map[string]string{
		"no object":            `[]`,
		"a version of no type": `{"protocolVersion":1,"capabilities":{}}`,
		"another version":      `{"protocolVersion":"1","capabilities":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.noInit = func(w http.ResponseWriter, r *http.Request) { result(w, asked(r).id, members) }
			_, err := f.client().List(t.Context())
			if err == nil || strings.Contains(err.Error(), "mcp.") || strings.Contains(err.Error(), "Go ") {
				t.Error(err)
			}
		})
	}
}

// Some servers and proxies decode ids into strings or floating-point numbers.
func TestIDsAreComparedByValue(t *testing.T) {
	for name, form := range map[string]string{"text": `"%s"`, "float": "%s.0", "exponent": "%se0", "text of a float": `"%s.0"`} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			as := func(raw string) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					result(w, json.RawMessage(fmt.Sprintf(form, asked(r).id)), raw)
				}
			}
			f.noInit = as(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`)
			f.override[methodList] = as(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`)
			f.override["echo"] = as(`{"content":[{"type":"text","text":"ok"}]}`)
			f.override["events"] = func(w http.ResponseWriter, r *http.Request) {
				asEvents(w)
				fmt.Fprintf(w, "data: {\"id\":"+form+",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"ok\"}]}}\n\n", asked(r).id)
			}
			c := f.client()
			if l, err := c.List(t.Context()); err != nil || len(l) != 1 {
				t.Fatal(l, err)
			}
			for _, tool := range []string{"echo", "events"} {
				if r, err := named(c, tool).Call(t.Context(), toolCall()); err != nil || r.IsError || textOf(r) != "ok" {
					t.Errorf("%s: %v %v", tool, textOf(r), err)
				}
			}
		})
	}
}

func TestSameID(t *testing.T) {
	for _, same := range []string{`3`, `3.0`, `3e0`, `"3"`, `"3.0"`, `30e-1`, `0.3e1`} {
		if canonicalID(json.RawMessage(same)) != "3" {
			t.Errorf("%s is %s", same, canonicalID(json.RawMessage(same)))
		}
	}
	seen := map[string]string{"3": "3"}
	for _, other := range []string{`4`, `"4x"`, `3.5`, `"listen"`, `"03"`, `" 3"`, `null`, `""`, `true`, `-3`, `3e99`, `9007199254740993`, `9007199254740992`, `"a"`, `"A"`, `"0x3"`} {
		id := canonicalID(json.RawMessage(other))
		if before, ok := seen[id]; ok {
			t.Errorf("%s and %s are the same", other, before)
		}
		seen[id] = other
	}
	if canonicalID(json.RawMessage(`"\u0061"`)) != canonicalID(json.RawMessage(`"a"`)) {
		t.Error("an escaped letter is another one")
	}
}

// A server at /mcp/ that redirects from /mcp can only be used if the log says where it is.
func TestTheErrorOfARefusedRedirectNamesThePath(t *testing.T) { // K05
	for name, c := range map[string]struct{ location, want string }{
		"a path":             {"/mcp/", "/mcp/ not followed"},
		"query and fragment": {"/login?token=hunter2&x=1#hunter2", "/login not followed"},
		"credentials":        {"http://user:hunter2@127.0.0.1:1/a/b", "127.0.0.1:1/a/b not followed"},
		"control characters": {"/a%0A%1b[31mb", "/a%0A%1B%5B31mb not followed"},
		"a long path":        {"/" + strings.Repeat("a", 4000), "… not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", c.location)
				w.WriteHeader(http.StatusTemporaryRedirect)
			}))
			t.Cleanup(srv.Close)
			policy := egress.DefaultPolicy()
			policy.BlockLoopback = false
			way := egress.New(policy, egress.Options{})
			t.Cleanup(way.CloseIdleConnections)
			client := New(Server{Name: "moved", URL: srv.URL + "/mcp?key=hunter2"}, way.Guarded(egress.GuardedOptions{}), slog.New(slog.NewTextHandler(io.Discard, nil)))
			t.Cleanup(func() { _ = client.Close() })
			_, err := client.List(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 500 {
				t.Errorf("%v, want %s", err, c.want)
			}
			r, err := unanswered(named(client, "echo").Call(t.Context(), tool.Call{}))
			if err != nil || strings.Contains(textOf(r), srv.URL) || strings.Contains(textOf(r), "/a") {
				t.Errorf("the model reads %q, %v", textOf(r), err)
			}
		})
	}
}
