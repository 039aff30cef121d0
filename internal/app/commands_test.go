package app_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// A command is run as cmd/turnpike runs it, without the process around it.
type command struct {
	args  []string
	env   map[string]string
	files map[string]string // in the directory that DIR stands for

	status int
	stdout []string // substrings; none = nothing is printed
	stderr []string
}

func TestCommandsThatEndByThemselves(t *testing.T) {
	NoLeaks(t)
	const minimal = "listen: 127.0.0.1:0\nproviders: [{name: d, kind: demo}]\norgs:\n  - id: o\n    keys: [{name: k, key: 'env:KEY'}]\n"
	for name, c := range map[string]command{
		"no command teaches":           {args: nil, stdout: []string{"turnpike demo", "turnpike serve --config turnpike.yaml", "Available Commands"}},
		"help teaches":                 {args: []string{"--help"}, stdout: []string{"turnpike demo", "config", "version"}},
		"help of serve teaches":        {args: []string{"serve", "--help"}, stdout: []string{"OPENAI_API_KEY", "--config", "--log-level", "25 seconds"}},
		"help of demo teaches":         {args: []string{"demo", "--help"}, stdout: []string{"scripted model", "--listen", "--once"}},
		"help of config check teaches": {args: []string{"config", "check", "--help"}, stdout: []string{"turnpike.yaml:17:21", "exit status"}},
		"version":                      {args: []string{"version"}, stdout: []string{"turnpike ", "go1."}},
		"the flag version":             {args: []string{"--version"}, stdout: []string{"turnpike ", "go1."}},
		"init writes a file":           {args: []string{"config", "init", "DIR/a.yaml"}, stdout: []string{"a.yaml is written", "export TURNPIKE_KEY=tp_", "turnpike serve --config"}},
		"init leaves a file alone": {args: []string{"config", "init", "DIR/a.yaml"}, files: map[string]string{"a.yaml": "x"},
			status: 1, stderr: []string{"a.yaml exists"}},
		"a file without providers": {args: []string{"config", "check", "DIR/a.yaml"}, files: map[string]string{"a.yaml": "listen: 127.0.0.1:0\n"},
			status: 1, stderr: []string{"providers: is missing; want at least one provider"}},
		"an empty list of providers": {args: []string{"config", "check", "DIR/a.yaml"}, files: map[string]string{"a.yaml": "listen: 127.0.0.1:0\nproviders: []\n"},
			status: 1, stderr: []string{"a.yaml:2:", "providers: is missing"}},
		"a shell variable in a secret": {args: []string{"config", "check", "DIR/a.yaml"},
			files:  map[string]string{"a.yaml": "providers: [{name: d, kind: openai, api_key: \"${OPENAI_API_KEY}\"}]\n"},
			status: 1, stderr: []string{"a.yaml:1:46: providers[0].api_key: ${OPENAI_API_KEY} is not replaced in this file; write env:OPENAI_API_KEY"}},
		"a shell variable in a header": {args: []string{"config", "check", "DIR/a.yaml"},
			files: map[string]string{"a.yaml": minimal + "    mcp_servers:\n      - {name: s, url: 'http://h/', headers: {Authorization: 'Bearer ${TOKEN:-x}'}}\n"}, env: map[string]string{"KEY": "k"},
			status: 1, stderr: []string{"a.yaml:7:", "headers.Authorization", "write env:TOKEN"}},
		"an unknown command":   {args: []string{"sevre"}, status: 1, stderr: []string{`unknown command "sevre"`}},
		"an unknown flag":      {args: []string{"serve", "--prot", "1"}, status: 1, stderr: []string{"unknown flag: --prot"}},
		"too many arguments":   {args: []string{"version", "x"}, status: 1, stderr: []string{"turnpike: "}},
		"check without a file": {args: []string{"config", "check"}, status: 1, stderr: []string{"open turnpike.yaml", "config init"}},
		"check of two files":   {args: []string{"config", "check", "a", "b"}, status: 1, stderr: []string{"turnpike: "}},
		"an unknown command of config": {args: []string{"config", "chek"}, status: 1,
			stderr: []string{`unknown command "chek" for "turnpike config"; did you mean check?`}},
		"an unknown command of keys": {args: []string{"keys", "lst"}, status: 1,
			stderr: []string{`unknown command "lst" for "turnpike keys"; did you mean list?`}},
		"a group without a command": {args: []string{"keys"}, stdout: []string{"Available Commands", "turnpike keys [command]"}},
		"check reports everything at once": {args: []string{"config", "check", "DIR/a.yaml"},
			files: map[string]string{"a.yaml": minimal + "    features: [mcp_outbound]\n    mcp_servers: [{name: s, url: 'http://10.1.2.3/'}]\n" +
				"bogus: 1\nrates: missing.yaml\nmax_rounds_cap: 9999\n"},
			status: 1, stderr: []string{"bogus: unknown key", "rates: ", "missing.yaml", "max_rounds_cap: ",
				"orgs[0].keys[0].key: environment variable KEY is not set",
				"warning: ", "mcp_servers[0].url: the outbound policy refuses this URL"}},
		"check names mistakes before warnings": {args: []string{"config", "check", "DIR/a.yaml"},
			env: map[string]string{"KEY": "sixteen-letters-"},
			files: map[string]string{"a.yaml": minimal +
				"    feature: [mcp_outbound]\n    mcp_servers: [{name: s, url: 'http://example.com/'}]\n"},
			status: 1, stderr: []string{"did you mean features?\nwarning: "}},
		"check of a file that is not there": {args: []string{"config", "check", "DIR/no.yaml"}, status: 1,
			stderr: []string{"no.yaml", "no such file"}},
		"check of a right file": {args: []string{"config", "check", "DIR/a.yaml"}, files: map[string]string{"a.yaml": minimal},
			env: map[string]string{"KEY": "sixteen-letters-"}, stdout: []string{"a.yaml is valid"}},
		"check of a key that can be guessed": {args: []string{"config", "check", "DIR/a.yaml"}, files: map[string]string{"a.yaml": minimal},
			env: map[string]string{"KEY": "fifteen-letters"}, stdout: []string{"a.yaml is valid"},
			stderr: []string{"warning: ", "orgs[0].keys[0].key: the key has 15 characters; use at least 16"}},
		"a strict check of a key that can be guessed": {args: []string{"config", "check", "--strict", "DIR/a.yaml"},
			files: map[string]string{"a.yaml": minimal},
			env:   map[string]string{"KEY": "fifteen-letters"}, status: 1, stderr: []string{"a.yaml:5", "orgs[0].keys[0].key: the key has 15 characters; use at least 16"}},
		"check of a model list that is empty": {args: []string{"config", "check", "DIR/a.yaml"}, files: map[string]string{"a.yaml": "providers: [{name: d, kind: demo, models: []}]\n"},
			status: 1, stderr: []string{"a.yaml:1:", "providers[0].models: is empty"}},
		"check of a program that does not exist": {args: []string{"config", "check", "--strict", "DIR/a.yaml"}, env: map[string]string{"KEY": "sixteen-letters-"},
			files:  map[string]string{"a.yaml": minimal + "    features: [mcp_outbound]\n    mcp_servers: [{name: s, command: [no-such-program, x]}]\n"},
			status: 1, stderr: []string{"a.yaml:7:", `orgs[0].mcp_servers[0].command: the program "no-such-program" cannot be started`}},
		"check of a file whose variable is not set": {args: []string{"config", "check", "DIR/a.yaml"}, files: map[string]string{"a.yaml": minimal},
			status: 1, stderr: []string{"a.yaml:5", "orgs[0].keys[0].key", "KEY"}},
		"check names every mistake with its place": {args: []string{"config", "check", "DIR/a.yaml"},
			files:  map[string]string{"a.yaml": "lsten: x\norgs:\n  - id: o\n    runtime:\n      max_rounds: 51\n"},
			status: 1, stderr: []string{"a.yaml:1:1: lsten: unknown key; did you mean listen?", "a.yaml:5:19: orgs[0].runtime.max_rounds: 51 is above max_rounds_cap (50)"}},
		"serve with an unknown key refuses to start and names it": {args: []string{"serve", "-c", "DIR/a.yaml"},
			files: map[string]string{"a.yaml": minimal + "    mcp_server: []\n"}, env: map[string]string{"KEY": "k"},
			status: 1, stderr: []string{"a.yaml:6:5", "mcp_server", "did you mean mcp_servers?"}},
		"serve with a file that is not there": {args: []string{"serve", "--config", "DIR/no.yaml"}, status: 1,
			stderr: []string{"no such file", "correct the path, or write a first file with \"turnpike config init\""}},
		"serve without anything says what to do": {args: []string{"serve"}, status: 1,
			stderr: []string{"OPENAI_API_KEY", "--config", "turnpike demo"}},
		"serve with a log level that is none": {args: []string{"serve", "--log-level", "loud"}, status: 1, stderr: []string{"loud", "debug, info, warn or error"}},
		"serve on an address that is taken": {args: []string{"serve", "-c", "DIR/a.yaml"}, env: map[string]string{"KEY": "k", "TURNPIKE_LISTEN": "TAKEN"},
			files: map[string]string{"a.yaml": minimal}, status: 1, stderr: []string{"listen:", "address already in use. Stop the process that uses it"}},
		"serve without the variable of a key": {args: []string{"serve", "-c", "DIR/a.yaml"}, files: map[string]string{"a.yaml": minimal},
			status: 1, stderr: []string{"orgs[0].keys[0].key", "KEY"}},
		"one demo": {args: []string{"demo", "--once", "--listen", "127.0.0.1:0"},
			stdout: []string{"base URL  http://127.0.0.1:", "API key   tp_", "round 0", "round 1", "get_weather", "convert_temperature", "complete   (", "export TURNPIKE_KEY=tp_", "curl -s http://127.0.0.1:"}},
		"one demo where its port is taken": {args: []string{"demo", "--once", "--listen", "TAKEN"}, stdout: []string{"complete   ("},
			stderr: []string{" is in use, so the demo serves on another port: use the base URL below."}},
	} {
		t.Run(name, func(t *testing.T) { c.run(t) })
	}
}

func (c command) run(t *testing.T) {
	dir := t.TempDir()
	for name, text := range c.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	fill := strings.NewReplacer("DIR", dir, "TAKEN", taken.Addr().String())
	args := make([]string, len(c.args))
	for i, a := range c.args {
		args[i] = fill.Replace(a)
	}
	env := func(name string) (string, bool) {
		if name == "TURNPIKE_DATA" {
			return dir, true
		}
		v, ok := c.env[name]
		return fill.Replace(v), ok
	}
	var stdout, stderr bytes.Buffer
	status := cli.Main(t.Context(), cli.Process{Args: args, Env: env, Stdout: &stdout, Stderr: &stderr})
	if status != c.status {
		t.Errorf("exit status %d, want %d", status, c.status)
	}
	for where, pair := range map[string]struct {
		got  string
		want []string
	}{"stdout": {stdout.String(), c.stdout}, "stderr": {stderr.String(), c.stderr}} {
		for _, w := range pair.want {
			if !strings.Contains(pair.got, w) {
				t.Errorf("%s does not say %q:\n%s", where, w, pair.got)
			}
		}
		if len(pair.want) == 0 && pair.got != "" {
			t.Errorf("%s is not empty:\n%s", where, pair.got)
		}
	}
}

// The lines that the demo prints work as they are.
func TestTheDemoKeepsServingAndItsCurlLineWorks(t *testing.T) {
	NoLeaks(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out, printed := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(ctx, cli.Process{Args: []string{"demo", "--listen", "127.0.0.1:0"}, Env: NoEnvironment, Stdout: printed, Stderr: io.Discard})
		_ = printed.Close()
	}()
	var text string
	line := regexp.MustCompile(`(?m)^export TURNPIKE_KEY=(\S+)\ncurl -s (\S+) -H "Authorization: Bearer \$TURNPIKE_KEY" -H 'Content-Type: application/json' -d '(.*)'$`)
	buf := make([]byte, 4096)
	for !strings.Contains(text, "Ctrl-C") {
		n, err := out.Read(buf)
		text += string(buf[:n])
		if err != nil {
			t.Fatalf("%v after\n%s", err, text)
		}
	}
	m := line.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no curl line in\n%s", text)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	g := &Gateway{T: t, URL: strings.TrimSuffix(m[2], "/v1/chat/completions"), Client: &http.Client{Transport: &http.Transport{}}}
	answer, reason := g.Post(m[3], "Authorization", "Bearer "+m[1]).Completion(t)
	if !strings.Contains(answer, "°F") || reason != "stop" {
		t.Errorf("%q, %s", answer, reason)
	}
	g.Client.CloseIdleConnections()
	cancel()
	if status := Wait(t, ended, "the demo's end"); status != 0 {
		t.Errorf("exit status %d", status)
	}
}

// SIGTERM: a request that is under way is finished, new ones are not taken, and
// the exit status is 0. On the built binary.
func TestSIGTERMLetsRequestsFinish(t *testing.T) {
	NoLeaks(t)
	dir, program := t.TempDir(), Program(t)
	for _, loopOn := range []bool{true, false} {
		reached, release := make(chan struct{}), make(chan struct{})
		up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
			w.Header().Set("Content-Type", "text/event-stream")
			Frame(w, `{"choices":[{"index":0,"delta":{"content":"Hel"}}]}`)
			_ = http.NewResponseController(w).Flush()
			close(reached)
			<-release
			Frame(w, `{"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}`)
			Frame(w, `[DONE]`)
		})
		tools := NewMCP(t, map[string]Handler{"echo": Echo})
		s := Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}
		if !loopOn {
			s.Feature = "none"
		}
		config := filepath.Join(dir, "a.yaml")
		if err := os.WriteFile(config, []byte(s.Yaml()), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, "serve", "--config", config)
		cmd.Env = append(os.Environ(), "UPSTREAM_KEY=k", "TURNPIKE_DATA="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		log := &LogBuffer{}
		cmd.Stderr = log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // where the test failed before
		g := &Gateway{T: t, URL: listensOn(t, out), Client: &http.Client{Transport: &http.Transport{}}}
		got := make(chan Answer, 1)
		go func() {
			resp, err := g.Client.Do(g.Request(context.Background(), "POST", "/v1/chat/completions", strings.NewReader(StreamedQuestion)))
			if err != nil {
				close(got)
				return
			}
			data, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			got <- Answer{Status: resp.StatusCode, Header: resp.Header, Body: data}
		}()
		Wait(t, reached, "the model to be asked")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		saysItIsStopping(t, strings.TrimPrefix(g.URL, "http://"))
		close(release)
		if s := Wait(t, got, "the answer").Stream(t); s.Text != "Hello" || s.Done != 1 {
			t.Errorf("loop %t: %+v", loopOn, s)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("loop %t: %v\n%s", loopOn, err, log)
		}
		g.Client.CloseIdleConnections()
	}
}

// listensOn reads the address from what serve prints.
func listensOn(t *testing.T, out io.Reader) string {
	t.Helper()
	address := regexp.MustCompile(`listens on (http://\S+)`)
	var text string
	buf := make([]byte, 1024)
	for {
		n, err := out.Read(buf)
		text += string(buf[:n])
		if m := address.FindStringSubmatch(text); m != nil {
			return m[1]
		}
		if err != nil {
			t.Fatalf("%v after %q", err, text)
		}
	}
}

// saysItIsStopping returns when /readyz says that the gateway is stopping.
func saysItIsStopping(t *testing.T, address string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10_000 {
		resp, err := client.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatalf("the port is closed although a request is under way: %v", err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode == 503 && string(body) == "stopping\n" {
			return
		}
	}
	t.Fatal("/readyz does not say that the gateway is stopping")
}

// The same in the process: ctx is the signal.
func TestTheEndOfTheContextLetsRequestsFinish(t *testing.T) {
	NoLeaks(t)
	reached, release := make(chan struct{}), make(chan struct{})
	tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
		close(reached)
		select {
		case <-release:
			return "ok", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	up := NewUpstream(t, Script(Asks(Use("wait", `{}`)), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	got := make(chan string, 1)
	go func() {
		resp, err := g.Client.Do(g.Request(context.Background(), "POST", "/v1/chat/completions", strings.NewReader(Question)))
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		got <- string(data)
	}()
	Wait(t, reached, "the tool to be called")
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop() }()
	saysItIsStopping(t, strings.TrimPrefix(g.URL, "http://"))
	close(release)
	if text := Wait(t, got, "the answer"); !strings.Contains(text, "Done.") {
		t.Errorf("%s", text)
	}
	if err := Wait(t, stopped, "the gateway's end"); err != nil {
		t.Error(err)
	}
}
