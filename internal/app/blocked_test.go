package app_test

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

	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// A run that the outbound policy ends says which server it was, why, and which
// setting would allow it; addresses only to roles that may see them. // K04
func TestABlockedServerIsNamedWithItsRemedy(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("never")))
	data := t.TempDir()
	g := mustRunIn(t, data, site{upstream: up.URL, allow: "127.0.0.1/32", servers: []string{server("files", "http://10.1.2.3/mcp?apikey=CANARY-query")}}.yaml(), environment())
	for role, want := range map[string]string{
		"owner": `{"message":"outbound_ssrf_blocked: ssrf_blocked:private:10.1.2.3; the outbound policy refuses the MCP server \"files\" at http://10.1.2.3/mcp; ` +
			`the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"10.1.2.3/32\"]","type":"permission_error","param":null,"code":"outbound_ssrf_blocked",` +
			`"server":"files","url":"http://10.1.2.3/mcp","setting":"outbound.ssrf.allowlist_cidrs"}`,
		"member": `{"message":"outbound_ssrf_blocked: ssrf_blocked:private; the outbound policy refuses the MCP server \"files\"; ` +
			`the operator can allow its address with outbound.ssrf.allowlist_cidrs","type":"permission_error","param":null,"code":"outbound_ssrf_blocked",` +
			`"server":"files","setting":"outbound.ssrf.allowlist_cidrs"}`,
	} {
		got := g.post(question, "Authorization", "Bearer "+role+"-key")
		var body struct{ Error json.RawMessage }
		if err := json.Unmarshal(got.body, &body); err != nil || got.status != 403 || string(body.Error) != want {
			t.Errorf("the %s got %d\n%s, want\n%s", role, got.status, body.Error, want)
		}
		if story := g.showRun(t, data, got.header.Get("Turnpike-Run-Id")); !strings.Contains(story, "of the MCP server files http://10.1.2.3/mcp") ||
			!strings.Contains(story, `to allow it, set outbound.ssrf.allowlist_cidrs: ["10.1.2.3/32"] in the configuration`) {
			t.Errorf("runs show says\n%s", story)
		}
	}
	log := g.log.String()
	if want := `server=files url=http://10.1.2.3/mcp reason=private address=10.1.2.3 setting=outbound.ssrf.allowlist_cidrs`; !strings.Contains(log, "level=WARN msg=\"the outbound policy refuses an MCP server\"") || !strings.Contains(log, want) {
		t.Errorf("the log lacks %s:\n%s", want, log)
	}
	if strings.Contains(log, "CANARY-query") {
		t.Error("the log has the query of the URL")
	}
}

// showRun returns what "turnpike runs show" prints.
func (g *gateway) showRun(t *testing.T, data, id string) string {
	t.Helper()
	status, out, errs := runMain(t, "runs", "show", id, "--data", data, "--org", "o")
	if status != 0 {
		t.Fatalf("runs show %s: %d: %s", id, status, errs)
	}
	return out
}

func TestAForbiddenAddressIsRefusedWhenTheServerIsCreated(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script())
	g := MustRun(t, site{upstream: up.URL, allow: "127.0.0.1/32"}.yaml())
	api := manage(g)
	for url, reason := range map[string]string{
		"http://10.1.2.3/mcp":      `private; the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"10.1.2.3/32\"]`,
		"http://169.254.169.254/x": `metadata; the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"169.254.169.254/32\"]`,
		"http://127.0.0.2:8080/":   `loopback; the operator can allow it with outbound.ssrf.allowlist_cidrs: [\"127.0.0.2/32\"]`,
	} {
		for _, do := range []func() answer{
			func() answer {
				return g.send("POST", "/api/mcp-servers", strings.NewReader(`{"name":"s","url":"`+url+`"}`))
			},
			func() answer { return g.send("PATCH", "/api/mcp-servers/good", strings.NewReader(`{"url":"`+url+`"}`)) },
		} {
			api.do("POST", "/api/mcp-servers", "owner-key", `{"name":"good","url":"https://mcp.example.com/"}`, 201)
			got := do()
			if want := `{"error":{"code":"outbound_ssrf_blocked","message":"the outbound policy refuses this URL: ` + reason + `","param":"url"}}` + "\n"; got.status != 422 || string(got.body) != want {
				t.Errorf("%s: status %d: %s, want %s", url, got.status, got.body, want)
			}
			api.do("DELETE", "/api/mcp-servers/good", "owner-key", "", 200)
		}
	}
}

func TestConfigCheckNamesAServerThatThePolicyRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.yaml")
	yaml := site{upstream: "http://127.0.0.1:9", servers: []string{
		server("ok", "https://mcp.example.com/"), server("s", "http://10.1.2.3/mcp"), server("off", "http://10.1.2.3/mcp", "enabled: false"), server("t", "http://10.1.2.4/mcp"),
	}}.yaml()
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := runMain(t, "config", "check", file)
	want := "warning: " + file + `:18:24: orgs[0].mcp_servers[1].url: the outbound policy refuses this URL: private; the operator can allow it with outbound.ssrf.allowlist_cidrs: ["10.1.2.3/32"]
warning: ` + file + `:20:24: orgs[0].mcp_servers[3].url: the outbound policy refuses this URL: private; the operator can allow it with outbound.ssrf.allowlist_cidrs: ["10.1.2.4/32"]
`
	if status != 0 || !strings.Contains(errs, want) || out != file+" is valid\n" { // the gateway starts
		t.Errorf("status %d: %s\n%s, want\n%s", status, out, errs, want)
	}
	if status, out, errs := runMain(t, "config", "check", "--strict", file); status != 1 || !strings.Contains(errs, want) || out != "" {
		t.Errorf("strict: status %d: %s\n%s", status, out, errs)
	}
	if status, _, errs := runMain(t, "mcp", "check", "s", "--config", file, "--org", "o"); status != 1 || !strings.Contains(errs, "private; the operator can allow it with") {
		t.Errorf("mcp check: %d: %s", status, errs)
	}
}

func TestServeWarnsOfAServerThatThePolicyRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "t.yaml")
	yaml := site{upstream: "http://127.0.0.1:9", servers: []string{server("ok", "https://mcp.example.com/"), server("s", "http://10.1.2.3/mcp")}}.yaml()
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	env := func(name string) (string, bool) { v, ok := environment()[name]; return v, ok }
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
	yaml := site{upstream: "http://127.0.0.1:9", servers: []string{server("s", "https://mcp.example.com:22/")}}.yaml()
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "the outbound policy refuses https://mcp.example.com:22/: port; correct the server's URL\n"
	if status, _, errs := runMain(t, "mcp", "check", "s", "--config", file, "--org", "o"); status != 1 || !strings.HasSuffix(errs, want) {
		t.Errorf("%d: %s", status, errs)
	}
}

// An MCP server that wants credentials says so in its status, in the log and in
// "mcp check", with what to set.
func TestAnMCPServerThatWantsCredentialsIsReportedAsSuch(t *testing.T) {
	noLeaks(t)
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
				up := newUpstream(t, script(says("without")))
				yaml := site{upstream: up.URL, servers: []string{server("locked", locked.URL)}}.yaml()
				g := MustRun(t, yaml)
				g.post(question)
				want := text + ": set its credentials in the server's headers"
				shown := manage(g).do("GET", "/api/mcp-servers/locked", "owner-key", "", 200)["status"].(map[string]any)["error"]
				if shown != "answered with "+want {
					t.Errorf("the status says %q", shown)
				}
				if log := g.log.String(); !strings.Contains(log, "mcp_server_unavailable") || !strings.Contains(log, want) {
					t.Errorf("the log says\n%s", log)
				}
				file := filepath.Join(t.TempDir(), "t.yaml")
				if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
					t.Fatal(err)
				}
				if code, _, errs := runMain(t, "mcp", "check", "locked", "--config", file, "--org", "o"); code != 1 || !strings.Contains(errs, want) {
					t.Errorf("mcp check: %d %s", code, errs)
				}
			})
		}
	}
}

// runMain runs a command with the harness's environment.
func runMain(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	env := func(name string) (string, bool) { v, ok := environment()[name]; return v, ok }
	var stdout, stderr bytes.Buffer
	status = cli.Main(t.Context(), cli.Process{Args: args, Env: env, Stdout: &stdout, Stderr: &stderr})
	return status, stdout.String(), stderr.String()
}
