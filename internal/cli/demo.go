package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

const demoQuestion = "How warm is it in Lisbon, in Fahrenheit?"

func demoCommand(p Process) *cobra.Command {
	var listen string
	var once, tools bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run an offline demo of the agent loop",
		Long: `Start a gateway with a scripted model and a small MCP server, both over HTTP. Send
one question, print what happens, and keep serving.

Only the model is scripted. The gateway is the same as in "turnpike serve".

With --tools the gateway uses its built-in tools instead of the MCP server: it reads a
page of a web server that the demo starts, and runs code in a sandbox. The code is
JavaScript, and Python too if "turnpike sandbox add" has added it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), p, listen, once, tools)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8080", "`ADDRESS` to serve on; if the port is in use, another one is chosen")
	cmd.Flags().BoolVar(&once, "once", false, "exit after the first answer")
	cmd.Flags().BoolVar(&tools, "tools", false, "show the built-in tools: read a web page and run code in a sandbox")
	return cmd
}

func runDemo(ctx context.Context, p Process, listen string, once, tools bool) error {
	log, _, flush := newLog(p.Stderr, config.Log{Level: "warn"})
	defer flush()
	var servers demo.Servers
	defer servers.Stop()
	serve := demo.MCPServer
	if tools {
		serve = demo.Pages
	}
	url, err := servers.Serve(serve())
	if err != nil {
		return err
	}
	data, err := os.MkdirTemp("", "turnpike-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { _ = os.RemoveAll(data) }()
	free := freeAddress(listen)
	shown, c, err := p.demoOf(free, data, url, tools)
	if err != nil {
		return err
	}
	if free != listen {
		fmt.Fprintf(p.Stderr, "%s is in use, so the demo serves on another port: use the base URL below.\n\n", plain(listen))
	}
	watch := func(j journal.Journal) journal.Journal {
		return &narrator{Journal: j, out: p.Stdout, printers: map[string]*factPrinter{}}
	}
	a, err := app.New(ctx, c, app.Options{Env: p.Env, Log: log, Watch: watch, Program: shown.program})
	if err != nil {
		return err
	}
	defer a.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var serving sync.WaitGroup
	var served error
	serving.Go(func() { served = a.Serve(ctx) })
	err = shown.show(ctx, p.Stdout, a.URL())
	if err != nil || once {
		stop()
	} else {
		fmt.Fprint(p.Stdout, "\nServing until you press Ctrl-C.\n")
	}
	serving.Wait()
	return errors.Join(err, served)
}

// shownDemo is what a demo shows.
type shownDemo struct {
	heading, note string
	question      string
	key           string   // of its org
	program       []string // starts the sandbox; nil = there is none
}

// demoOf returns a demo and its configuration. url is that of the server that the demo has started.
func (p Process) demoOf(listen, data, url string, tools bool) (shownDemo, *config.Config, error) {
	servers := fmt.Sprintf("    mcp_servers: [{name: demo-tools, url: %q, trust: true}]\n", url)
	shown := shownDemo{heading: "Turnpike demo: a scripted model and a real MCP server, both over HTTP.", question: demoQuestion}
	if tools {
		servers = ""
	}
	c, key, err := demoConfig(p.Env, listen, data, servers)
	if shown.key = key; err != nil || !tools {
		return shown, c, err
	}
	python, err := p.addTools(c)
	if err != nil {
		return shown, nil, err
	}
	shown.heading, shown.question = toolsHeading, toolsQuestion(url, python)
	if !python {
		shown.note = withoutPython
	}
	shown.program, err = p.ownProgram()
	return shown, c, err
}

// demoConfig is the configuration of the demo; the outbound policy lets it
// reach the address of its own server.
func demoConfig(env config.Environment, listen, data, servers string) (*config.Config, string, error) {
	c, err := config.Parse("demo", []byte(fmt.Sprintf(`
listen: %q
data: %q
providers: [{name: demo, kind: demo, models: [demo]}]
outbound: {ssrf: {allowlist_cidrs: [127.0.0.1/32]}}
orgs:
  - id: default
    features: [mcp_outbound]
%s`, listen, data, servers)), env)
	if err != nil {
		return nil, "", err
	}
	master := make([]byte, 32) // as long as its data: the directory is removed at the end
	_, _ = rand.Read(master)   // never fails
	if c.MasterKey, err = secret.Parse(base64.StdEncoding.EncodeToString(master)); err != nil {
		return nil, "", err
	}
	key, err := giveKey(c)
	return c, key, err
}

// freeAddress returns the address, or one with a free port if it is taken.
func freeAddress(address string) string {
	l, err := net.Listen("tcp", address)
	if err == nil {
		_ = l.Close()
		return address
	}
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr == nil && errors.Is(err, syscall.EADDRINUSE) {
		return net.JoinHostPort(host, "0")
	}
	return address
}

// show asks the question over HTTP, as any client would.
func (d shownDemo) show(ctx context.Context, out io.Writer, url string) error {
	fmt.Fprintf(out, "%s\n\n  base URL  %s/v1\n  API key   %s\n\n%s", d.heading, url, d.key, d.note)
	body, err := json.Marshal(map[string]any{
		"model": "demo", "messages": []map[string]string{{"role": "user", "content": d.question}},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "POST /v1/chat/completions   %q\n\n", d.question)
	answer, err := ask(ctx, url, d.key, string(body))
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	fmt.Fprintf(out, "\nThe client saw one ordinary answer:\n  %s\n\nTry it yourself, in another terminal:\n", plain(answer))
	fmt.Fprintf(out, "export TURNPIKE_KEY=%s\n", d.key)
	fmt.Fprintf(out, "curl -s %s/v1/chat/completions -H \"Authorization: Bearer $TURNPIKE_KEY\" -H 'Content-Type: application/json' -d '%s'\n", url, body)
	return nil
}

func ask(ctx context.Context, url, key, body string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	status, data, err := send(url, req)
	if err != nil {
		return "", err
	}
	var answer struct {
		Choices []struct {
			Message struct{ Content string } `json:"message"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(data, &answer); err != nil || status != http.StatusOK || len(answer.Choices) == 0 {
		return "", fmt.Errorf("the gateway answered %d: %s", status, data)
	}
	return answer.Choices[0].Message.Content, nil
}

// narrator is a journal that tells what is written into it.
type narrator struct {
	journal.Journal
	out io.Writer

	mu       sync.Mutex // guards printers, and keeps the lines of one batch together
	printers map[string]*factPrinter
}

// Append implements journal.Journal.
func (n *narrator) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	if err := n.Journal.Append(ctx, lease, after, b); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.printers[lease.RunID]
	if p == nil {
		p = newFactPrinter(n.out, false, &journal.Story{Rows: map[string]json.RawMessage{}})
		n.printers[lease.RunID] = p
	}
	p.story.Facts = append(p.story.Facts, b.Facts...)
	for _, r := range b.Rows {
		if text, err := r.JSON(); err == nil {
			p.story.Rows[r.Ref] = text
		}
	}
	for _, f := range b.Facts {
		p.print(f)
		if f.Body.Kind() == loop.KindFinished {
			delete(n.printers, lease.RunID)
		}
	}
	return nil
}
