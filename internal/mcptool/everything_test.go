package mcptool

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/tool"
)

// everything returns the command of the reference server, or skips the test.
func everything(t *testing.T) []string {
	t.Helper()
	root, err := os.Getwd()
	for err == nil && root != filepath.Dir(root) {
		if _, statErr := os.Stat(filepath.Join(root, "go.mod")); statErr == nil {
			break
		}
		root = filepath.Dir(root)
	}
	script := filepath.Join(root, "conformance", "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(script)
	}
	switch {
	case err == nil:
		return []string{node, script}
	case os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1":
		t.Fatalf("needs node and the packages of conformance: %v", err)
	}
	t.Skipf("needs node and the packages of conformance: %v", err)
	return nil
}

// remoteEverything runs the reference server over legacy SSE or streamable HTTP, until the test
// ends, and returns its origin.
func remoteEverything(t *testing.T, command []string, transport string) string {
	port := strconv.Itoa(upstreamtest.FreePort(t))
	cmd := exec.Command(command[0], command[1], transport)
	cmd.Env = append(os.Environ(), "PORT="+port)
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
	})
	ready := make(chan bool, 1)
	go func() {
		defer close(drained)
		defer close(ready)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if strings.Contains(lines.Text(), "on port") {
				ready <- true
			}
		}
	}()
	if !<-ready {
		t.Fatal("the reference server did not start")
	}
	return "http://127.0.0.1:" + port
}

func TestTheReferenceServer(t *testing.T) { // D16
	for name, connect := range map[Transport]func(*testing.T, []string) *Client{
		Stdio: func(t *testing.T, command []string) *Client {
			c := New(Server{Name: "everything", Command: append(command, "stdio"), Env: func(context.Context) (map[string]string, error) {
				return map[string]string{"COLOUR": "green"}, nil
			}}, nil, nil)
			t.Cleanup(func() { _ = c.Close() })
			return c
		},
		LegacySSE: func(t *testing.T, command []string) *Client {
			return clientOf(t, remoteEverything(t, command, "sse")+"/sse")
		},
		StreamableHTTP: func(t *testing.T, command []string) *Client {
			return clientOf(t, remoteEverything(t, command, "streamableHttp")+"/mcp")
		},
	} {
		t.Run(string(name), func(t *testing.T) {
			c := connect(t, everything(t))
			report, err := c.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if report.Transport != name || report.Protocol != sessionVersion || report.ServerName != "mcp-servers/everything" || len(report.Tools) < 10 || len(report.LeftOut) != 0 {
				t.Errorf("%+v", report)
			}
			sum, err := named(c, "get-sum").Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"a":2,"b":40}`)})
			if err != nil || sum.IsError || !strings.Contains(textOf(sum), "42") {
				t.Error(sum, err)
			}
			env, err := named(c, "get-env").Call(t.Context(), tool.Call{})
			if err != nil || strings.Contains(textOf(env), "COLOUR") != (name == Stdio) {
				t.Error(env, err)
			}
			if r, err := named(c, "nosuch").Call(t.Context(), tool.Call{}); err != nil || !r.IsError {
				t.Error(r, err)
			}
		})
	}
}
