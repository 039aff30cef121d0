package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// childMode is the environment variable by which the test binary is told to be a
// server on standard input and output.
const childMode = "TURNPIKE_TEST_CHILD"

// serveAsChild is the other end of the stdio tests; false where this is no child.
func serveAsChild() bool {
	mode := os.Getenv(childMode)
	if mode != "" && os.Getenv("TURNPIKE_TEST_NOTE") != "" {
		note("start")
	}
	switch mode {
	case "":
		return false
	case "official":
		_ = officialChild().Run(context.Background(), &mcp.StdioTransport{})
	case "crash":
		fmt.Fprintln(os.Stderr, "cannot open the database")
		os.Exit(7)
	case "holder":
		_, _ = io.Copy(io.Discard, os.Stdin)
		forever() // outlives its input
	case "gateway":
		serveAsGateway()
	default:
		(&rawChild{mode: mode, out: os.Stdout}).serve()
	}
	return true
}

// note appends a line to the file that the test reads.
func note(line string) {
	f, err := os.OpenFile(os.Getenv("TURNPIKE_TEST_NOTE"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(f, line)
	_ = f.Close()
}

// officialChild is a server of the SDK whose tools do what the tests need.
func officialChild() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "child", Version: "2"}, nil)
	add := func(name string, f func(arguments string) string) {
		server.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: f(string(r.Params.Arguments))}}}, nil
			})
	}
	add("echo", func(arguments string) string { return arguments })
	add("env", func(string) string { return strings.Join(os.Environ(), "\n") })
	add("pid", func(string) string { return fmt.Sprint(os.Getpid()) })
	add("die", func(string) string {
		note("die")
		fmt.Fprintln(os.Stderr, "out of \xff memory")
		os.Exit(3)
		return ""
	})
	server.AddTool(&mcp.Tool{Name: "key", InputSchema: json.RawMessage(`{"type":"object"}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			text := fmt.Sprint(r.Params.Meta[metaKey])
			if r.Params.Meta["traceparent"] != nil {
				text += fmt.Sprint(" ", r.Params.Meta["traceparent"], " ", r.Params.Meta["tracestate"])
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil
		})
	add("grow", func(string) string {
		add("grown", func(string) string { return "" })
		return "grown"
	})
	return server
}

// rawChild speaks the protocol by hand, and badly where its tools are called.
type rawChild struct {
	mode string
	out  io.Writer
	late []json.RawMessage // ids of the calls that were not answered yet
}

func (r *rawChild) serve() {
	switch r.mode {
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
	case "banner":
		fmt.Fprint(r.out, "Welcome to the server!\n\n{\"not\": \"rpc\"}\n[1]\n\xff\xfe\n")
	case "parent":
		holder := exec.Command(os.Args[0])
		holder.Env = append(os.Environ(), childMode+"=holder")
		holder.Stdout, holder.Stderr = os.Stdout, os.Stderr
		if err := holder.Start(); err != nil {
			panic(err)
		}
		note(fmt.Sprint(holder.Process.Pid))
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			break
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if json.Unmarshal(line, &m) == nil {
			r.answer(m.ID, m.Method, m.Params.Name)
		}
	}
	if r.mode == "stubborn" {
		time.Sleep(time.Hour) // whatever happens to its input
	}
}

func (r *rawChild) answer(id json.RawMessage, method, tool string) {
	switch {
	case method == methodInitialize && r.mode == "modern":
		r.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no initialize here"}}`, id)
	case method == methodInitialize:
		r.say(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}}`, id)
	case method == methodDiscover && r.mode == "modern":
		r.say(`{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`, id)
	case method == methodDiscover:
		os.Exit(9) // as servers do that know only their own revision
	case method == methodList:
		r.say(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"pid","inputSchema":{"type":"object"}}]}}`, id)
	case method == methodCall:
		r.call(id, tool)
	case method == "" && id != nil:
		note("reply " + string(id))
	}
}

func (r *rawChild) call(id json.RawMessage, tool string) {
	good := `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"good"}]}}`
	switch tool {
	case "pid":
		r.say(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%d"}]}}`, id, os.Getpid())
	case "late": // answered with the call of good
		r.late = append(r.late, bytes.Clone(id))
		note("late")
		return
	case "hang":
		note("hang")
		return
	case "deaf": // reads nothing any more
		note("deaf")
		forever()
	case "talks":
		for range 64 {
			fmt.Fprintln(os.Stderr, strings.Repeat("t", 1<<20))
		}
		r.say(good, id)
	case "huge": // the id comes last, as some servers write it
		r.say(`{"result":{"content":[{"type":"text","text":"%s"}]},"jsonrpc":"2.0","id":%s}`, strings.Repeat("h", maxAnswer), id)
	case "endless":
		flood(r.out, "")
	case "noise":
		for {
			if _, err := fmt.Fprintf(r.out, `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"%s"}}`+"\n", strings.Repeat("n", 1<<16)); err != nil {
				return
			}
		}
	case "half":
		fmt.Fprintf(r.out, `{"jsonrpc":"2.0","id":%s,`, id)
		os.Exit(1)
	case "closes":
		_ = os.Stdout.Close()
		return
	case "wrong":
		r.say(good, `"7"`)
		r.say(good, "999")
		r.say(`{"jsonrpc":"2.0","id":%s}`, id)
	case "bytes":
		r.say("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a\xff\xfeb\"}]}}", id)
	case "nullid":
		r.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"cannot parse"}}`)
	case "asks":
		r.say(`{"jsonrpc":"2.0","id":"p1","method":"ping"}`)
		r.say(`{"jsonrpc":"2.0","id":2,"method":"sampling/createMessage","params":{}}`)
		r.say(good, id)
	default:
		for _, id := range append(r.late, id) {
			r.say(good, id)
		}
		r.late = nil
	}
}

func (r *rawChild) say(format string, a ...any) {
	_, _ = fmt.Fprintf(r.out, format+"\n", a...)
}

// serveAsGateway runs a client whose child does not want to end, says the
// child's process id and waits to be killed.
func serveAsGateway() {
	s := Server{Name: "stubborn", Command: []string{os.Args[0]}, Env: func(context.Context) (map[string]string, error) {
		return map[string]string{childMode: "stubborn"}, nil
	}}
	r, err := named(New(s, nil, nil), "pid").Call(context.Background(), toolCall())
	if err != nil {
		panic(err)
	}
	fmt.Println(textOf(r))
	forever()
}

// childClient returns a Client of this binary as a server, closed with the test, and
// the file of its notes.
func childClient(t *testing.T, mode string, change ...func(*Server)) (c *Client, notes func() []string) {
	t.Helper()
	file := t.TempDir() + "/notes"
	s := Server{Name: "child", Command: []string{os.Args[0]}, Timeout: time.Minute, Env: func(context.Context) (map[string]string, error) {
		return map[string]string{
			childMode: mode, "TURNPIKE_TEST_NOTE": file,
			"GORACE": "atexit_sleep_ms=0", // a child built for the race detector ends at once, too
		}, nil
	}}
	for _, f := range change {
		f(&s)
	}
	c = New(s, nil, nil)
	t.Cleanup(func() { _ = c.Close() })
	return c, func() []string {
		data, _ := os.ReadFile(file)
		return strings.Fields(string(data))
	}
}

// forever is not select{}: in a process without other goroutines, and without
// cgo, that is a deadlock, which ends it.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}
