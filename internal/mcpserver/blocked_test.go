package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// A run that the outbound policy ends says which server it was, why, and which
// setting would allow it; addresses only to roles that may see them. // K04
func TestABlockedServerIsNamedWithItsRemedy(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("never")))
	data := NewData(t)
	g := MustRunIn(t, data, Site{Upstream: up.URL, Allow: "127.0.0.1/32", Servers: []string{Server("files", "http://10.1.2.3/mcp?apikey=CANARY-query")}}.Yaml(), Environment())
	for role, want := range map[string]string{
		"owner": `{"message":"outbound_ssrf_blocked: ssrf_blocked:private:10.1.2.3; the outbound policy refuses the MCP server \"files\" at http://10.1.2.3/mcp; ` +
			`the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"10.1.2.3/32\"]","type":"permission_error","param":null,"code":"outbound_ssrf_blocked",` +
			`"server":"files","url":"http://10.1.2.3/mcp","setting":"outbound.ssrf.allowlist_cidrs"}`,
		"member": `{"message":"outbound_ssrf_blocked: ssrf_blocked:private; the outbound policy refuses the MCP server \"files\"; ` +
			`the operator can allow its address with outbound.ssrf.allowlist_cidrs","type":"permission_error","param":null,"code":"outbound_ssrf_blocked",` +
			`"server":"files","setting":"outbound.ssrf.allowlist_cidrs"}`,
	} {
		got := g.Post(Question, "Authorization", "Bearer "+role+"-key")
		var body struct{ Error json.RawMessage }
		if err := json.Unmarshal(got.Body, &body); err != nil || got.Status != 403 || string(body.Error) != want {
			t.Errorf("the %s got %d\n%s, want\n%s", role, got.Status, body.Error, want)
		}
		if story := g.ShowRun(t, data, got.Header.Get("Turnpike-Run-Id")); !strings.Contains(story, "of the MCP server files http://10.1.2.3/mcp") ||
			!strings.Contains(story, `to allow it, set outbound.ssrf.allowlist_cidrs: ["10.1.2.3/32"] in the configuration`) {
			t.Errorf("runs show says\n%s", story)
		}
	}
	log := g.Log.String()
	if want := `server=files url=http://10.1.2.3/mcp reason=private address=10.1.2.3 setting=outbound.ssrf.allowlist_cidrs`; !strings.Contains(log, "level=WARN msg=\"the outbound policy refuses an MCP server\"") || !strings.Contains(log, want) {
		t.Errorf("the log lacks %s:\n%s", want, log)
	}
	if strings.Contains(log, "CANARY-query") {
		t.Error("the log has the query of the URL")
	}
}

func TestAForbiddenAddressIsRefusedWhenTheServerIsCreated(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script())
	g := MustRun(t, Site{Upstream: up.URL, Allow: "127.0.0.1/32"}.Yaml())
	api := Manage(g)
	for url, reason := range map[string]string{
		"http://10.1.2.3/mcp":      `private; the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"10.1.2.3/32\"]`,
		"http://169.254.169.254/x": `metadata; the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"169.254.169.254/32\"]`,
		"http://127.0.0.2:8080/":   `loopback; the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"127.0.0.2/32\"]`,
	} {
		for _, do := range []func() Answer{
			func() Answer {
				return g.Send("POST", "/api/mcp-servers", strings.NewReader(`{"name":"s","url":"`+url+`"}`))
			},
			func() Answer { return g.Send("PATCH", "/api/mcp-servers/good", strings.NewReader(`{"url":"`+url+`"}`)) },
		} {
			api.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"good","url":"https://mcp.example.com/"}`, 201)
			got := do()
			if want := `{"error":{"code":"outbound_ssrf_blocked","message":"the outbound policy refuses this URL: ` + reason + `","param":"url"}}` + "\n"; got.Status != 422 || string(got.Body) != want {
				t.Errorf("%s: status %d: %s, want %s", url, got.Status, got.Body, want)
			}
			api.Do("DELETE", "/api/mcp-servers/good", "owner-key", "", 200)
		}
	}
}

func TestConfigCheckNamesAServerThatThePolicyRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.yaml")
	yaml := Site{Upstream: "http://127.0.0.1:9", Servers: []string{
		Server("ok", "https://mcp.example.com/"), Server("s", "http://10.1.2.3/mcp"), Server("off", "http://10.1.2.3/mcp", "enabled: false"), Server("t", "http://10.1.2.4/mcp"),
	}}.Yaml()
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := RunMain(t, "config", "check", file)
	want := "warning: " + file + `:18:24: orgs[0].mcp_servers[1].url: the outbound policy refuses this URL: private; the operator can allow it with outbound.ssrf.allowlist_cidrs: ["10.1.2.3/32"]
warning: ` + file + `:20:24: orgs[0].mcp_servers[3].url: the outbound policy refuses this URL: private; the operator can allow it with outbound.ssrf.allowlist_cidrs: ["10.1.2.4/32"]
`
	if status != 0 || !strings.Contains(errs, want) || out != file+" is valid\n" { // the gateway starts
		t.Errorf("status %d: %s\n%s, want\n%s", status, out, errs, want)
	}
	if status, out, errs := RunMain(t, "config", "check", "--strict", file); status != 1 || !strings.Contains(errs, want) || out != "" {
		t.Errorf("strict: status %d: %s\n%s", status, out, errs)
	}
	if status, _, errs := RunMain(t, "mcp", "check", "s", "--config", file, "--org", "o"); status != 1 || !strings.Contains(errs, "private; the operator can allow it with") {
		t.Errorf("mcp check: %d: %s", status, errs)
	}
}

func TestServeWarnsOfAServerThatThePolicyRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.yaml")
	yaml := Site{Upstream: "http://127.0.0.1:9", Servers: []string{Server("ok", "https://mcp.example.com/"), Server("s", "http://10.1.2.3/mcp")}}.Yaml()
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	env := func(name string) (string, bool) { v, ok := Environment()[name]; return v, ok }
	var errs bytes.Buffer
	cli.Main(ctx, cli.Process{Args: []string{"serve", "--config", file}, Env: env, Stdout: announced(cancel), Stderr: &errs})
	want := `:18:24: orgs[0].mcp_servers[1].url: the outbound policy refuses this URL: private; the operator can allow it with outbound.ssrf.allowlist_cidrs`
	if strings.Count(errs.String(), "the outbound policy refuses") != 1 || !strings.Contains(errs.String(), want) {
		t.Errorf("the log says\n%s", errs.String())
	}
}

// announced is called when the gateway prints that it listens.
type announced func()

func (f announced) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestMCPCheckSaysThatOnlyAnotherURLHelps(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.yaml")
	yaml := Site{Upstream: "http://127.0.0.1:9", Servers: []string{Server("s", "https://mcp.example.com:22/")}}.Yaml()
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "the outbound policy refuses https://mcp.example.com:22/: port; correct the server's URL\n"
	if status, _, errs := RunMain(t, "mcp", "check", "s", "--config", file, "--org", "o"); status != 1 || !strings.HasSuffix(errs, want) {
		t.Errorf("%d: %s", status, errs)
	}
}

// An MCP server that wants credentials says so in its status, in the log and in
// "mcp check", with what to set.
func TestAnMCPServerThatWantsCredentialsIsReportedAsSuch(t *testing.T) {
	NoLeaks(t)
	for name, body := range map[string]string{
		"plain":    "who are you?",
		"JSON-RPC": `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"no"}}`,
	} {
		for status, text := range map[int]string{401: "HTTP status 401 (Unauthorized)", 403: "HTTP status 403 (Forbidden)"} {
			t.Run(name+" "+text, func(t *testing.T) {
				locked := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					_, _ = w.Write([]byte(body))
				}))
				defer locked.Close()
				up := NewUpstream(t, Script(Says("without")))
				yaml := Site{Upstream: up.URL, Servers: []string{Server("locked", locked.URL)}}.Yaml()
				g := MustRun(t, yaml)
				g.Post(Question)
				want := text + ": set its credentials in the server's headers"
				shown := Manage(g).Do("GET", "/api/mcp-servers/locked", "owner-key", "", 200)["status"].(map[string]any)["error"]
				if shown != "answered with "+want {
					t.Errorf("the status says %q", shown)
				}
				if log := g.Log.String(); !strings.Contains(log, "mcp_server_unavailable") || !strings.Contains(log, want) {
					t.Errorf("the log says\n%s", log)
				}
				file := filepath.Join(t.TempDir(), "t.yaml")
				if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
					t.Fatal(err)
				}
				if code, _, errs := RunMain(t, "mcp", "check", "locked", "--config", file, "--org", "o"); code != 1 || !strings.Contains(errs, want) {
					t.Errorf("mcp check: %d %s", code, errs)
				}
			})
		}
	}
}
