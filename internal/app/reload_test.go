package app_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// serving is a gateway of the built program.
type serving struct {
	*Gateway
	cmd  *exec.Cmd
	file string // the configuration
}

// serve starts the built program with the configuration, and ends it with the test.
func serve(t *testing.T, yaml string) *serving {
	t.Helper()
	dir := t.TempDir()
	s := &serving{file: filepath.Join(dir, "turnpike.yaml")}
	s.write(t, yaml)
	s.cmd = exec.Command(Program(t), "serve", "--config", s.file)
	s.cmd.Env = append(os.Environ(), "UPSTREAM_KEY=k", "TURNPIKE_DATA="+dir)
	log := &LogBuffer{}
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.Gateway = &Gateway{T: t, Client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}, Log: log}
	t.Cleanup(func() {
		s.Client.CloseIdleConnections()
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("the gateway ended with %v", err)
		}
		if t.Failed() {
			t.Logf("log of the gateway:\n%s", log)
		}
	})
	s.URL = listensOn(t, out)
	return s
}

func (s *serving) write(t *testing.T, yaml string) {
	t.Helper()
	if err := os.WriteFile(s.file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
}

// reload changes the file, sends SIGHUP and returns what the log says until it has the
// text.
func (s *serving) reload(t *testing.T, yaml, until string) string {
	t.Helper()
	before := len(s.Log.String())
	s.write(t, yaml)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(s.Log.String()[before:], until) {
			return s.Log.String()[before:]
		}
	}
	t.Fatalf("the log does not have %q:\n%s", until, s.Log.String()[before:])
	return ""
}

const readAgain = "the configuration was read again"

// SIGHUP under load applies what can be changed while serving, from the next request
// on, and names every change in the log. No request fails.
func TestSIGHUPAppliesTheConfigurationWhileServing(t *testing.T) {
	answer := func(w http.ResponseWriter, _ *http.Request, got Received) {
		if bytes.Contains(got.Body, []byte(`"role":"tool"`)) {
			_, _ = fmt.Fprintf(w, `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"echo","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}`)
	}
	up, other := NewUpstream(t, answer), NewUpstream(t, answer)
	echoes, more := NewMCP(t, map[string]Handler{"echo": Echo}), NewMCP(t, map[string]Handler{"more": Echo})
	was := Site{Upstream: up.URL, Runtime: "max_rounds: 5", Servers: []string{Server("s", echoes.URL)}}.Yaml()
	is := strings.NewReplacer(
		"max_rounds: 5", "max_rounds: 1, on_limit: stop",
		"{name: c, key: member-key, role: member}", "{name: c, key: another-key, role: member}",
		"providers:\n", fmt.Sprintf("log: {level: debug}\nmax_rounds_cap: 9\norg_caps: {keys: 1}\nproviders:\n  - {name: other, base_url: %q, models: [x]}\n", other.URL+"/v1"),
		"    mcp_servers:\n", "    mcp_servers:\n      - {"+Server("t", more.URL)+"}\n",
	).Replace(was) + "  - {id: p, keys: [{name: a, key: p-key, role: owner}]}\n"
	g := serve(t, was)

	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		clients.Go(func() {
			for ctx.Err() == nil {
				resp, err := g.Client.Do(g.Request(context.Background(), "POST", "/v1/chat/completions", strings.NewReader(Question)))
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || err != nil {
					t.Errorf("status %d, %v: %s", resp.StatusCode, err, body)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range 3 { // back and forth
		log := g.reload(t, is, readAgain)
		for _, key := range []string{
			"key=max_rounds_cap old=unset new=9", "key=org_caps.keys old=1000 new=1", "key=providers[other] old=absent new=present", "key=log.level old=info new=debug",
			"key=orgs[o].runtime.max_rounds old=5 new=1", "key=orgs[o].keys[c].key", "key=orgs[o].mcp_servers[t] old=absent new=present", "key=orgs[p] old=absent new=present",
		} {
			if !strings.Contains(log, key) {
				t.Errorf("the log does not name the change %q:\n%s", key, log)
			}
		}
		if strings.Contains(log, "another-key") || strings.Contains(log, "member-key") {
			t.Error("the log has a key")
		}
		asked := len(other.Requests())
		if a := g.Send("POST", "/v1/chat/completions", strings.NewReader(strings.Replace(Question, `"m"`, `"x"`, 1)), "Authorization", "Bearer another-key"); a.Status != 200 || len(other.Requests()) != asked+1 {
			t.Errorf("the new provider: %d %s", a.Status, a.Body)
		} else if last := other.Requests()[asked]; !bytes.Contains(last.Body, []byte(`"more"`)) {
			t.Errorf("the model does not see the tool of the new server: %s", last.Body)
		}
		if a := g.Send("GET", "/v1/models", nil, "Authorization", "Bearer p-key"); a.Status != 200 || !strings.Contains(string(a.Body), `"id":"x"`) {
			t.Errorf("the new org: %d %s", a.Status, a.Body)
		}
		if a := g.Send("GET", "/v1/models", nil, "Authorization", "Bearer member-key"); a.Status != 401 {
			t.Errorf("the old key: %d", a.Status)
		}
		g.reload(t, was, readAgain)
		if a := g.Send("GET", "/v1/models", nil, "Authorization", "Bearer member-key"); a.Status != 200 {
			t.Errorf("the key that is back: %d", a.Status)
		}
		if a := g.Send("GET", "/v1/models", nil, "Authorization", "Bearer p-key"); a.Status != 401 {
			t.Errorf("the key of the org that was removed: %d", a.Status)
		}
		if a := g.Post(strings.Replace(Question, `"m"`, `"x"`, 1)); a.Status != 404 {
			t.Errorf("the provider that was removed: %d %s", a.Status, a.Body)
		}
	}

	log := g.reload(t, strings.Replace(was, "max_rounds: 5", "max_rounds: 500", 1), "has a mistake")
	if !strings.Contains(log, "orgs[0].runtime.max_rounds: 500 is out of range (1..256)") || strings.Contains(log, "configuration changed") {
		t.Errorf("a file with a mistake:\n%s", log)
	}
	log = g.reload(t, strings.Replace(was, "listen: 127.0.0.1:0", "listen: 127.0.0.1:1\nmax_requests: 7", 1), readAgain)
	for _, key := range []string{"key=listen ", "key=max_requests old=20000 new=7"} {
		if i := strings.Index(log, key); i < 0 || !strings.Contains(lineAt(log, i), "needs a restart") {
			t.Errorf("the log does not say that %q needs a restart:\n%s", key, log)
		}
	}
	if log = g.reload(t, was, readAgain); !strings.Contains(log, "changes=0") {
		t.Errorf("the file of the start:\n%s", log)
	}
	cancel()
	clients.Wait()
	if answered.Load() == 0 {
		t.Error("no request was answered")
	}
	t.Logf("%d requests were answered during seven changes", answered.Load())
}

// lineAt returns the line with the byte.
func lineAt(text string, at int) string {
	begin := strings.LastIndexByte(text[:at], '\n') + 1
	lines := strings.SplitN(text[begin:], "\n", 2)
	return lines[0]
}

// A credential that a reference leads to is looked up again. The model gets the new one.
func TestSIGHUPLooksCredentialsUpAgain(t *testing.T) {
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		_, _ = fmt.Fprint(w, `{"id":"1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"done"},"finish_reason":"stop"}]}`)
	})
	file := filepath.Join(t.TempDir(), "key.txt")
	write := func(key string) {
		if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	yaml := strings.Replace(Site{Upstream: up.URL}.Yaml(), "env:UPSTREAM_KEY", fmt.Sprintf("%q", "file:"+file), 1)
	g := serve(t, yaml)
	g.Post(Question)
	write("second")
	if log := g.reload(t, yaml, readAgain); !strings.Contains(log, "key=providers[up].api_key") || !strings.Contains(log, "changes=1") || strings.Contains(log, "second") {
		t.Errorf("the log says\n%s", log)
	}
	g.Post(Question)
	var sent []string
	for _, r := range up.Requests() {
		if bytes.Contains(r.Body, []byte(`"messages"`)) {
			sent = append(sent, r.Header.Get("Authorization"))
		}
	}
	if !slices.Equal(sent, []string{"Bearer first", "Bearer second"}) {
		t.Errorf("the provider got %q", sent)
	}
}
