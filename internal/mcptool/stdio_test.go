//go:build unix

package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// ask calls a tool and fails the test where there is no result.
func ask(t *testing.T, c *Client, name string) tool.Result {
	t.Helper()
	r, err := unanswered(named(c, name).Call(t.Context(), toolCall()))
	if err != nil {
		t.Fatalf("call %s: %v", name, err)
	}
	return r
}

// pidOf asks a child for its process id.
func pidOf(t *testing.T, c *Client) int {
	t.Helper()
	pid, err := strconv.Atoi(textOf(ask(t, c, "pid")))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// alive reports whether a process runs; one that only waits to be collected does
// not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !bytes.Contains(stat, []byte(") Z "))
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	until(t, fmt.Sprintf("process %d has ended", pid), func() bool { return !alive(pid) })
}

// arrived waits until a child has made a note.
func arrived(t *testing.T, notes func() []string, what string) {
	t.Helper()
	until(t, what+" has arrived", func() bool { return slices.Contains(notes(), what) })
}

func TestAStdioServerListsAndIsCalled(t *testing.T) { // D16
	t.Setenv("SECRET_OF_THE_GATEWAY", "x")
	c, _ := childClient(t, "official")
	if s := c.Status(); s.State != Unknown || s.Since.IsZero() {
		t.Errorf("before the first use: %+v", s)
	}
	tools, err := c.List(t.Context())
	if err != nil || len(tools) != 6 {
		t.Fatal(tools, err)
	}
	const arguments = `{"z":12345678901234567890,"a":"<é>"}`
	r, err := named(c, "echo").Call(t.Context(), tool.Call{Arguments: json.RawMessage(arguments)})
	if err != nil || textOf(r) != arguments {
		t.Error(r, err)
	}
	if r := ask(t, c, "nosuch"); !r.IsError || !strings.Contains(textOf(r), "nosuch") {
		t.Error(r)
	}
	r, err = named(c, "key").Call(t.Context(), tool.Call{IdempotencyKey: "k1"})
	if err != nil || textOf(r) != "k1" {
		t.Error(r, err)
	}
	for line := range strings.Lines(textOf(ask(t, c, "env"))) {
		name, _, _ := strings.Cut(line, "=")
		if !slices.Contains([]string{"PATH", "HOME", "TMPDIR", "LANG", childMode, "TURNPIKE_TEST_NOTE", "GORACE"}, name) {
			t.Errorf("the child sees %s", line)
		}
	}
	if s := c.Status(); s.State != Connected || s.Transport != Stdio || s.Protocol != sessionVersion || s.Tools != 6 || s.Error != "" {
		t.Errorf("status %+v", s)
	}
	pid := pidOf(t, c)
	start := time.Now()
	_ = c.Close()
	if alive(pid) || time.Since(start) > grace {
		t.Errorf("alive %v after %s", alive(pid), time.Since(start))
	}
}

func TestACallOfAStdioServerThatDiesIsToldSoAndNotRepeated(t *testing.T) { // D16, D19
	var log bytes.Buffer
	var mu sync.Mutex
	c, notes := childClient(t, "official")
	c.log = slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil))
	first := pidOf(t, c)
	r := ask(t, c, "die")
	if want := `server "child": the server process ended (exit status 3) before it answered`; !r.IsError || textOf(r) != want {
		t.Errorf("%v, want %s", r, want)
	}
	if second := pidOf(t, c); second == first || alive(first) {
		t.Errorf("processes %d and %d", first, second)
	}
	if got := notes(); !slices.Equal(got, []string{"start", "die", "start"}) {
		t.Errorf("notes %q", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if text := log.String(); !strings.Contains(text, `status="exit status 3"`) || !strings.Contains(text, "out of \ufffd memory") {
		t.Errorf("log %s", text)
	}
}

// locked makes a buffer safe for a logger of several goroutines.
type locked struct {
	mu *sync.Mutex
	*bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func TestACallThatMayBeRepeatedSurvivesTheDeathOfItsServer(t *testing.T) { // D19
	c, notes := childClient(t, "official", func(s *Server) { s.MaxRetries = 1 })
	x := named(c, "die")
	x.class = tool.Read
	r, err := unanswered(x.Call(t.Context(), toolCall()))
	if err != nil || !r.IsError || strings.Join(notes(), " ") != "start die start die" {
		t.Error(r, err, notes())
	}
}

func TestAStdioServerKilledFromOutsideIsBackForTheNextCall(t *testing.T) {
	c, notes := childClient(t, "raw")
	hung := make(chan tool.Result, 1)
	pid := pidOf(t, c)
	go func() {
		r, _ := unanswered(named(c, "hang").Call(t.Context(), toolCall()))
		hung <- r
	}()
	arrived(t, notes, "hang")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := <-hung; !r.IsError || !strings.Contains(textOf(r), "the server process ended (signal: killed)") {
		t.Errorf("call under way: %v", r)
	}
	if s := c.Status(); s.State != Failed || s.Error != "the server process ended (signal: killed) before it answered" {
		t.Errorf("status %+v", s)
	}
	if second := pidOf(t, c); second == pid {
		t.Error("the same process answered")
	}
	if s := c.Status(); s.State != Connected || s.Error != "" {
		t.Errorf("status %+v", s)
	}
}

func TestAHostileStdioServerFailsItsOwnCall(t *testing.T) { // D16
	for tool, row := range map[string]struct {
		want   string
		fine   bool
		spares bool // a sibling under way is not harmed
	}{
		"huge":    {"larger than 16 MiB", false, true},
		"endless": {"too many messages that the gateway did not request", false, false},
		"noise":   {"too many messages that the gateway did not request", false, false},
		"half":    {"the server process ended (exit status 1)", false, false},
		"closes":  {"the server process ended", false, false},
		"wrong":   {"neither result nor error", false, true},
		"bytes":   {"a\ufffd", true, true},
		"asks":    {"good", true, true},
		"hang":    {"did not answer within 1s", false, true},
	} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			c, notes := childClient(t, "raw")
			pid := pidOf(t, c)
			sibling := make(chan string, 1)
			go func() { sibling <- textOf(ask(t, c, "late")) }()
			arrived(t, notes, "late")
			if tool == "hang" {
				c.server.Timeout = time.Second
			}
			if r := ask(t, c, tool); r.IsError == row.fine || !strings.Contains(textOf(r), row.want) {
				t.Errorf("error %v: %.300q, want %q", r.IsError, textOf(r), row.want)
			}
			c.server.Timeout = time.Minute
			if r := ask(t, c, "good"); textOf(r) != "good" {
				t.Errorf("next call: %v", r)
			}
			if got := <-sibling; (got == "good") != row.spares {
				t.Errorf("sibling: %.200s", got)
			}
			if same := pidOf(t, c) == pid; same != row.spares {
				t.Errorf("same process %v", same)
			}
			_ = c.Close()
			gone(t, pid)
		})
	}
}

func TestGarbageBeforeTheProtocolIsSkipped(t *testing.T) {
	c, notes := childClient(t, "banner")
	if tools, err := c.List(t.Context()); err != nil || len(tools) != 1 {
		t.Fatal(tools, err)
	}
	if r := ask(t, c, "nullid"); !strings.Contains(textOf(r), "cannot parse (-32700)") {
		t.Error(r)
	}
	ask(t, c, "asks")
	arrived(t, notes, `"p1"`) // our answers to the server's requests
	arrived(t, notes, "2")
}

func TestAStdioServerOfTheLatestRevisionOnly(t *testing.T) {
	c, notes := childClient(t, "modern")
	r, err := c.Check(t.Context())
	if err != nil || r.Transport != Stdio || r.Protocol != statelessVersion || len(r.Tools) != 1 {
		t.Fatal(r, err)
	}
	c.replace(c.current)
	ask(t, c, "good")
	if got := len(notes()); got != 3 { // once too many for the probe, and not again
		t.Errorf("%d starts, want 3", got)
	}
}

func TestACommandThatDiesAtOnceRestsBetweenItsStarts(t *testing.T) {
	c, notes := childClient(t, "crash", func(s *Server) { s.MaxRetries = -1 })
	for range 3 {
		_, err := named(c, "x").Call(t.Context(), toolCall())
		if !errors.Is(err, tool.ErrNotSent) || !strings.Contains(err.Error(), "the server process ended (exit status 7)") {
			t.Errorf("call: %v", err)
		}
	}
	if len(notes()) != 3 || c.starts.failed != 3 || !c.starts.after.After(c.starts.last) {
		t.Errorf("%d starts, %+v", len(notes()), c.starts)
	}
	if s := c.Status(); s.State != Failed || s.Error != "the server process ended (exit status 7) before it answered" {
		t.Errorf("status %+v", s)
	}
	rested := c.starts.after
	_, _ = c.List(t.Context())
	if len(notes()) != 4 || c.starts.last.Before(rested) {
		t.Errorf("%d starts, the last at %v, want it after the rest, at %v", len(notes()), c.starts.last, rested)
	}
}

func TestACommandThatCannotBeStarted(t *testing.T) {
	secret := errors.New("no such secret")
	for name, row := range map[string]struct {
		server Server
		want   string // of the cause
		status string
	}{
		"no such program":   {Server{Command: []string{"/nonexistent/mcp", "SECRET"}}, "no such file", "its command could not be started"},
		"no secret":         {Server{Command: []string{"true"}, Env: func(context.Context) (map[string]string, error) { return nil, secret }}, "no such secret", "its environment could not be resolved"},
		"no variable":       {Server{Command: []string{"true"}, Env: func(context.Context) (map[string]string, error) { return map[string]string{"A=B": "SECRET"}, nil }}, `"A=B" cannot be set`, "its environment could not be resolved"},
		"neither of both":   {Server{}, "either a URL or a command", errServer.Error()},
		"not the right one": {Server{Command: []string{"sh", "-c", ":"}}, "server process ended", "the server process ended (exit status 0) before it answered"},
	} {
		t.Run(name, func(t *testing.T) {
			row.server.Name, row.server.MaxRetries = "s", -1
			c := New(row.server, nil, nil)
			defer c.Close()
			_, err := named(c, "x").Call(t.Context(), toolCall())
			var call *callError
			if !errors.Is(err, tool.ErrNotSent) || !errors.As(err, &call) || !strings.Contains(call.cause.Error(), row.want) || strings.Contains(call.cause.Error(), "SECRET") {
				t.Fatalf("call: %v", err)
			}
			if want := `not sent: server "s": ` + row.status; err.Error() != want { // what the model reads names no path and no secret
				t.Errorf("the model reads %q, want %q", err, want)
			}
			if s := c.Status(); s.State != Failed || s.Error != row.status {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestNoProcessIsLeftBehind(t *testing.T) {
	t.Run("one that ignores its input and SIGTERM", func(t *testing.T) {
		t.Parallel()
		c, _ := childClient(t, "stubborn")
		pid := pidOf(t, c)
		start := time.Now()
		_ = c.Close()
		if took := time.Since(start); alive(pid) || took > 2*grace+time.Second {
			t.Errorf("alive %v after %s", alive(pid), took)
		}
	})
	t.Run("what it started itself", func(t *testing.T) {
		t.Parallel()
		c, notes := childClient(t, "parent")
		ask(t, c, "good")
		_ = c.Close()
		pid, err := strconv.Atoi(notes()[1])
		if err != nil {
			t.Fatal(err)
		}
		gone(t, pid)
	})
	t.Run("a call under way", func(t *testing.T) {
		t.Parallel()
		c, notes := childClient(t, "raw")
		pid := pidOf(t, c)
		under := make(chan error, 1)
		go func() {
			_, err := named(c, "hang").Call(t.Context(), toolCall())
			under <- err
		}()
		arrived(t, notes, "hang")
		_ = c.Close()
		if err := <-under; !errors.Is(err, errClosed) || alive(pid) {
			t.Errorf("%v, alive %v", err, alive(pid))
		}
		if _, err := c.List(t.Context()); !errors.Is(err, errClosed) {
			t.Errorf("later list: %v", err)
		}
	})
	t.Run("when the gateway is killed", func(t *testing.T) {
		t.Parallel()
		if _, err := os.Stat("/proc/self/stat"); err != nil {
			t.Skip("only Linux kills children with their parent")
		}
		gateway := exec.Command(os.Args[0])
		gateway.Env = append(os.Environ(), childMode+"=gateway")
		out, err := gateway.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := gateway.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		_, err = fmt.Fscan(out, &pid)
		_ = gateway.Process.Kill()
		_ = gateway.Wait()
		if err != nil {
			t.Fatal(err)
		}
		gone(t, pid)
	})
}

func TestACallThatIsGivenUpReturnsAtOnceOverStdio(t *testing.T) {
	c, notes := childClient(t, "raw")
	ctx, cancel := context.WithCancelCause(t.Context())
	bye := errors.New("caller gone")
	under := make(chan error, 1)
	go func() {
		_, err := named(c, "hang").Call(ctx, toolCall())
		under <- err
	}()
	arrived(t, notes, "hang")
	cancel(bye)
	if err := <-under; !errors.Is(err, bye) {
		t.Error(err)
	}
	l := c.current.link
	until(t, "the call is forgotten", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.pending) == 0
	})
	if r := ask(t, c, "good"); textOf(r) != "good" {
		t.Error(r)
	}
}

func TestConcurrentCallsShareOneProcess(t *testing.T) {
	c, notes := childClient(t, "official")
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			arguments := fmt.Sprintf(`{"n":%d,"pad":%q}`, i, strings.Repeat("p", 1<<15))
			r, err := named(c, "echo").Call(t.Context(), tool.Call{Arguments: json.RawMessage(arguments)})
			if err != nil || textOf(r) != arguments {
				t.Errorf("%d: %.100v %v", i, r, err)
			}
		})
	}
	callers.Wait()
	if len(notes()) != 1 {
		t.Errorf("%d processes", len(notes()))
	}
}

func TestAServerThatDoesNotReadIsReplaced(t *testing.T) {
	c, notes := childClient(t, "raw", func(s *Server) { s.Timeout, s.MaxRetries = time.Second, -1 })
	pid := pidOf(t, c)
	deaf := make(chan tool.Result, 1)
	go func() { deaf <- ask(t, c, "deaf") }()
	arrived(t, notes, "deaf")
	large := tool.Call{Arguments: json.RawMessage(fmt.Sprintf("{\"pad\":%q}", strings.Repeat("p", 4<<20)))}
	r, err := unanswered(named(c, "good").Call(t.Context(), large)) // more than a pipe holds
	if err != nil || !r.IsError || !strings.Contains(textOf(r), "did not answer within 1s") {
		t.Errorf("%v %v", r, err)
	}
	if r := <-deaf; !r.IsError {
		t.Error(r)
	}
	until(t, "the process that does not read has ended", func() bool {
		if alive(pid) { // on a slow machine the call may have ended before it was written
			_, _ = named(c, "good").Call(t.Context(), large)
		}
		return !alive(pid)
	})
	if r := ask(t, c, "good"); textOf(r) != "good" {
		t.Error(r)
	}
}

func TestAServerThatTalksMuchOnStandardErrorIsCalled(t *testing.T) {
	var mu sync.Mutex
	var longest int
	c, _ := childClient(t, "raw")
	c.log = slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, len(p))
		return len(p), nil
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r := ask(t, c, "talks"); textOf(r) != "good" {
		t.Error(r)
	}
	_ = c.Close()
	if longest < maxStderrLine || longest > 2*maxStderrLine {
		t.Errorf("a log line of %d bytes", longest)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
