package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// hostile holds what a terminal obeys: a title, colours (with the 7-bit and the
// 8-bit introducer, and as a byte that is not UTF-8), a change of the direction of
// writing, a carriage return, and a line that looks like one of the command's own.
const hostile = "x\x1b]0;title\x07\x1b[31m\u009b31m\x9b31m\u202e\x7f\r\nfake\tline\v\f\x00"

// quotedHostile is hostile as JSON, and as a YAML string: without the byte that is
// not UTF-8.
func quotedHostile(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(strings.ToValidUTF8(hostile, ""))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every command is run on a store, files and a gateway whose values are hostile.
// A new command must be added here.
func TestNoCommandPassesControlCharactersToATerminal(t *testing.T) {
	NoLeaks(t)
	site := newHostileSite(t)
	invocations := map[string][][]string{
		"serve":               {{"-c", "wrong.yaml"}, {"-c", hostilePath}, {"--log-level", hostile}},
		"demo":                {{"--once", "--listen", "127.0.0.1:0"}, {"--once", "--listen", hostile}},
		"health":              {{}, {"--url", hostile}, {"-c", "wrong.yaml"}},
		"runs list":           {{"--org", "o"}, {"--org", "o", "--json"}, {"--before", hostile}, {"--state", hostile}, {"--since", hostile}, {"--key", hostile}},
		"runs show":           {{site.runID, "--org", "o"}, {site.runID, "--org", "o", "--full"}, {site.runID, "--org", "o", "--json"}, {hostile}},
		"runs follow":         {{site.runID, "--org", "o"}, {site.runID, "--org", "o", "--json"}, {hostile}, {site.runID, "--after", hostile}},
		"runs cancel":         {{hostile}, {"fail" + hostile}},
		"runs raise":          {{hostile}, {"fail" + hostile, "--usd", hostile}},
		"approvals list":      {{"--org", "o"}, {"--org", "o", "--json"}, {"--status", hostile}, {"--run", hostile}, {"--server", hostile}},
		"approvals show":      {{hostile}, {"fail" + hostile}, {"x", "--json"}},
		"approvals approve":   {{hostile}, {"fail" + hostile}, {"x", "--reason", hostile}},
		"approvals deny":      {{hostile}, {"fail" + hostile}},
		"keys create":         {{"a"}, {"fail", "--role", hostile}},
		"keys list":           {{}, {"--url", hostile}},
		"keys update":         {{hostile, "--role", hostile}, {"fail" + hostile, "--burst", "1"}, {"a"}},
		"keys revoke":         {{hostile}, {"fail" + hostile}},
		"keys rotate":         {{hostile, "--overlap", "1h"}, {"fail" + hostile}},
		"keys check":          {{}, {"--url", hostile}},
		"secrets set":         {{hostile}, {"fail" + hostile}},
		"secrets list":        {{}},
		"secrets delete":      {{hostile}, {"fail" + hostile}},
		"webhooks add":        {{hostile, "https://example.com", "--events", hostile}, {"fail" + hostile, "x"}},
		"webhooks list":       {{}, {"--json"}},
		"webhooks update":     {{hostile, "--to", hostile}, {"fail" + hostile, "--enabled"}, {"a"}},
		"webhooks rotate":     {{hostile, "--overlap", "1h"}, {"fail" + hostile}},
		"webhooks remove":     {{hostile}, {"fail" + hostile}},
		"webhooks test":       {{hostile}, {"fail" + hostile}},
		"webhooks deliveries": {{hostile}, {hostile, "--json"}, {"fail" + hostile}, {"a", "--outcome", hostile}},
		"webhooks redeliver":  {{hostile, hostile}, {"fail" + hostile, "x"}, {"a"}},
		"agents list":         {{}, {"--json"}},
		"agents get":          {{hostile}, {"fail" + hostile}, {"a", "--version", "1"}},
		"agents apply":        {{"agent.yaml"}, {"failing.yaml"}, {hostilePath}, {hostile}},
		"agents rm":           {{hostile}, {"fail" + hostile}},
		"agents run":          {{hostile, hostile}, {"fail" + hostile, "x"}, {"a", "x", "--session", hostile}, {"a", "x", "--json"}},
		"sessions list":       {{hostile}, {hostile, "--json"}, {"fail" + hostile}},
		"sessions get":        {{hostile}, {"fail" + hostile}},
		"sessions messages":   {{hostile}, {hostile, "--json"}, {"fail" + hostile}},
		"sessions rm":         {{hostile}, {"fail" + hostile}},
		"mcp list":            {{"--org", "o"}},
		"mcp disable":         {{hostile}, {"fail" + hostile}},
		"mcp enable":          {{hostile}, {"fail" + hostile}},
		"mcp check":           {{"s", "--org", "o"}, {site.server, "--org", "o"}, {hostile}},
		"rates":               {{"-c", "rated.yaml"}, {"-c", "wrong.yaml"}, {"--on", hostile}, {"--model", hostile}},
		"rates import":        {{"prices.yaml"}, {"-c", "rated.yaml", "--write", "prices.yaml"}, {hostilePath}, {hostile}, {"--from", hostile, "prices.yaml"}},
		"sandbox add":         {{hostilePath}, {hostile}, {"-c", "wrong.yaml", "x"}},
		"sandbox list":        {{"-c", "wrong.yaml"}, {"-c", hostilePath}}, // this test is no child process of itself
		"sandbox test":        {{"-c", "wrong.yaml"}, {"-c", hostilePath}, {"-c", "right.yaml"}, {"-c", "right.yaml", "--data", hostile}},
		"outbound":            {{}},
		"doctor":              {{"-c", "wrong.yaml"}, {"-c", hostilePath, "--json"}, {"--data", hostile}},
		"outbound check":      {{hostile}, {hostile, "https://example.com" + hostile}, {"-"}},
		"audit list":          {{"--org", "o"}, {"--from", hostile}},
		"audit export":        {{"--org", "o"}},
		"audit verify":        {{}, {"--public-key", hostile}, {"--checkpoints", hostile}},
		"audit key":           {{}, {"--data", hostile}},
		"budgets":             {{"--org", "o"}, {"--scope", hostile}},
		"usage":               {{"--org", "o", "--by", "key,model,end_user,day"}, {"--by", hostile}, {"--from", hostile}},
		"backup":              {{hostile + "/x"}, {hostilePath}},
		"restore":             {{"right.yaml", "--data", hostile}, {hostile, "--data", hostile}},
		"store copy":          {{"--from", hostile, "--to", hostile}, {"-c", "right.yaml", "--from", hostile, "--to", hostile}},
		"config init":         {{hostilePath}, {hostile + "/x"}},
		"config check":        {{"wrong.yaml"}, {hostilePath}, {"right.yaml"}},
		"version":             {{}, {hostile}},
	}
	for _, name := range leaves(cli.Command(cli.Process{Env: site.env}), "") {
		if len(invocations[name]) == 0 {
			t.Errorf("turnpike %s is not tried", name)
		}
	}
	for name, all := range invocations {
		for _, args := range all {
			t.Run(fmt.Sprintf("%s %.20q", name, args), func(t *testing.T) {
				out := site.run(t, append(strings.Fields(name), args...))
				if i := strings.IndexFunc(out, func(r rune) bool { return commands(r) && r != '\n' && r != '\t' }); i >= 0 || strings.Contains(out, "\nfake") {
					t.Errorf("a control character, or a line that is not the command's own (byte %d):\n%q", i, out)
				}
				if out == "" {
					t.Error("nothing was printed")
				}
			})
		}
	}
}

// commands reports whether a terminal may do something else than show r.
func commands(r rune) bool {
	return r != '\u200d' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
}

// leaves returns the names of the commands that do something.
func leaves(c *cobra.Command, name string) (names []string) {
	for _, sub := range c.Commands() {
		full := strings.TrimSpace(name + " " + sub.Name())
		if sub.Runnable() && !sub.HasSubCommands() { // with subcommands it prints its help, or names the one that does not exist
			names = append(names, full)
		}
		names = append(names, leaves(sub, full)...)
	}
	return names
}

// hostilePath is the name of a file that is there.
const hostilePath = "a\x1b[31m\nfake.yaml"

// hostileSite is a data directory, configuration files and a management API.
type hostileSite struct {
	dir, runID string
	server     string // name of an MCP server in the store
	env        func(string) (string, bool)
}

func newHostileSite(t *testing.T) *hostileSite {
	t.Helper()
	s := &hostileSite{dir: t.TempDir(), server: "kept" + strings.ToValidUTF8(hostile, "")}
	s.story(t)
	api := httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(api.Close)
	s.env = func(name string) (string, bool) {
		v, ok := map[string]string{"TURNPIKE_URL": api.URL, "TURNPIKE_KEY": "k", "TURNPIKE_DATA": s.dir,
			"OPENAI_API_KEY": "k", "TURNPIKE_OUTBOUND_SSRF_ALLOWLIST_CIDRS": "127.0.0.0/8"}[name]
		return v, ok
	}
	model := strings.NewReplacer("[", "", "]", "").Replace(quotedHostile(t)) // names in prices have no brackets
	right := "listen: 127.0.0.1:0\nproviders: [{name: d, kind: demo, models: [" + quotedHostile(t) + "]}]\norgs: [{id: o, keys: [{name: k, key: k, role: owner}]}]\n"
	for name, text := range map[string]string{
		"right.yaml":   right,
		"rated.yaml":   "providers: [{name: o, kind: openai, api_key: k}]\nrates: rates.yaml\n",
		"rates.yaml":   "- {model: " + model + ", from: 2026-01-01, input: 3, output: 4}\n",
		"prices.yaml":  `{` + model + `:{"litellm_provider":"openai","input_cost_per_token":1e-6,"output_cost_per_token":2e-6}}`,
		"agent.yaml":   "name: " + quotedHostile(t) + "\nmodel: " + quotedHostile(t) + "\n",
		"failing.yaml": "- name: fail\n",
		"wrong.yaml":   "listen: " + quotedHostile(t) + "\n" + quotedHostile(t) + ": 1\norgs: [{id: " + quotedHostile(t) + "}]\n",
		hostilePath:    "providers: 5\n",
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// story makes a run whose texts are hostile, and then changes the store behind the
// gateway's back: names are checked when they come in.
func (s *hostileSite) story(t *testing.T) {
	t.Helper()
	says1 := strings.ToValidUTF8(hostile, "")
	tools := NewMCP(t, map[string]Handler{"echo": func(context.Context, string) (string, error) { return "", fmt.Errorf("%s", says1) }})
	up := NewUpstream(t, Script(Asks(Use("echo", `{"text":`+quotedHostile(t)+`}`)), Says(says1)))
	g := MustRunIn(t, s.dir, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml(), Environment())
	answer := g.Post(Question)
	s.runID = answer.Header.Get("Turnpike-Run-Id")
	if got := g.Send("POST", "/api/mcp-servers", strings.NewReader(`{"name":"kept","url":"`+tools.URL+`"}`)); answer.Status != 200 || got.Status != 201 {
		t.Fatalf("status %d, %d: %s", answer.Status, got.Status, got.Body)
	}
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	text := "'" + says1 + "'"
	ChangeStore(t, s.dir,
		strings.ReplaceAll(`UPDATE runs SET model = H, principal = H, finish_reason = H`, "H", text[:strings.IndexByte(text, 0)]+"'"),
		strings.ReplaceAll(`UPDATE audit_log SET principal = H, kind = H, body = replace(body, 'echo', '`+"\u009b31m\u202e"+`')`, "H", text[:strings.IndexByte(text, 0)]+"'"),
		strings.ReplaceAll(`UPDATE mcp_outbound_servers SET name = H, settings = json_set(settings, '$.tools', json('[`+quotedHostile(t)+`]'))`, "H", "'kept"+text[1:strings.IndexByte(text, 0)]+"'"))
	s.server = "kept" + says1[:strings.IndexByte(says1, 0)]
	line, err := json.Marshal(map[string]any{"org": says1, "number": 1, "at": 1, "hash": audit.Hash{1}.String(), "signature": "AAAA"})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, app.CheckpointsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s\n{\"hash\":%s}\n", line, quotedHostile(t)); err != nil {
		t.Fatal(err)
	}
}

// answer is a management API that is not to be trusted: a path or a body with
// "fail" in it gets an error.
func (s *hostileSite) answer(w http.ResponseWriter, r *http.Request) {
	var in struct{ Name string }
	_ = json.NewDecoder(r.Body).Decode(&in) // not every request has one
	text := strings.ToValidUTF8(hostile, "")
	object := map[string]any{"id": text, "name": text, "role": text, "hint": text, "key": text}
	switch {
	case r.URL.Path == "/readyz":
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	case strings.Contains(r.URL.Path+in.Name, "fail"):
		w.WriteHeader(http.StatusConflict)
		object = map[string]any{"error": map[string]any{"message": text}}
	case r.Method == http.MethodGet:
		said := map[string]any{"role": text, "content": text, "tool_calls": []any{map[string]any{"name": text, "arguments": text}}}
		object = map[string]any{"data": []any{object, object}, "agents": []any{object, object}, "sessions": []any{object}, "messages": []any{said}}
	}
	_ = json.NewEncoder(w).Encode(object) // who is gone needs no answer
}

// run runs a command in the site's directory and returns all that it prints.
func (s *hostileSite) run(t *testing.T, args []string) string {
	t.Helper()
	for i, a := range args {
		if strings.HasSuffix(a, ".yaml") {
			args[i] = filepath.Join(s.dir, a)
		}
	}
	var out bytes.Buffer
	cli.Main(t.Context(), cli.Process{Args: args, Env: s.env, Stdin: strings.NewReader(hostile + "\n"), Stdout: &out, Stderr: &out})
	return out.String()
}
