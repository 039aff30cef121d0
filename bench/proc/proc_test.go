package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// roleKey makes the test binary play a child.
const roleKey = "PROC_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" {
		os.Exit(play(role))
	}
	goleak.VerifyTestMain(m)
}

func play(role string) int {
	fmt.Fprintln(os.Stderr, "I am", role)
	switch role {
	case "fails":
		return 3
	case "ignores SIGTERM":
		signal.Ignore(syscall.SIGTERM)
	case "echo":
		_, _ = io.CopyN(os.Stdout, os.Stdin, int64(len("hello\n")))
	case "busy":
		for end := time.Now().Add(time.Minute); time.Now().Before(end); { // another process may have the CPU
			line, err := os.ReadFile("/proc/self/stat")
			if used, _ := parseStat(line); err != nil || used > 0 {
				break
			}
		}
	}
	fmt.Println("127.0.0.1:1")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

func child(t *testing.T, role string) Command {
	t.Helper()
	return Command{
		Name: role, Path: os.Args[0], Env: append(os.Environ(), roleKey+"="+role),
		Log: filepath.Join(t.TempDir(), "log"), PipeOutput: true,
	}
}

func TestStopEndsEveryProcess(t *testing.T) {
	var g Group
	a, err := g.Start(child(t, "waits"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := g.Start(child(t, "waits"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Process{a, b} {
		if line, err := p.ReadLine(t.Context()); err != nil || line != "127.0.0.1:1" {
			t.Errorf("line %q, error %v", line, err)
		}
	}
	if err := g.Stop(); err != nil {
		t.Error(err)
	}
	for _, p := range []*Process{a, b} {
		select {
		case <-p.Exited():
		default:
			t.Errorf("process %d still runs", p.PID())
		}
	}
}

func TestStopKillsAProcessThatIgnoresSIGTERM(t *testing.T) {
	if testing.Short() {
		t.Skip("takes five seconds")
	}
	p, err := Start(child(t, "ignores SIGTERM"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ReadLine(t.Context()); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v, want one that says killed", err)
	}
}

func TestAProcessThatEndsByItselfIsReportedWithItsLastWords(t *testing.T) {
	p, err := Start(child(t, "fails"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ReadLine(t.Context()); err == nil || !strings.Contains(err.Error(), "I am fails") {
		t.Errorf("Line: error %v, want its last words", err)
	}
	<-p.Exited()
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Stop: error %v, want exit status 3", err)
	}
}

func TestLineEndsWithItsContext(t *testing.T) {
	c := child(t, "waits")
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.ReadLine(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestStartFailsForAMissingProgram(t *testing.T) {
	c := child(t, "waits")
	c.Path = filepath.Join(t.TempDir(), "none")
	if p, err := Start(c); err == nil {
		t.Errorf("started process %d", p.PID())
	}
}

func TestCPUCountsWork(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	p, err := Start(child(t, "busy"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if _, err := p.ReadLine(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d, err := p.CPU(); err != nil || d <= 0 || d > time.Minute {
		t.Errorf("CPU = %v, %v", d, err)
	}
}

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       time.Duration
		fails      bool
	}{
		{"user and system are added", "7 (bench) S 1 7 7 0 -1 4194560 90 0 0 0 12 30 0 0 20 0 5 0 99", 420 * time.Millisecond, false},
		{"a command may look like fields", "7 (a) S 1 (b) R 1 7 7 0 -1 4194560 90 0 0 0 1 2 0 0 20", 30 * time.Millisecond, false},
		{"no command", "7 S 1 7", 0, true},
		{"too short", "7 (bench) S 1 7 7", 0, true},
		{"no number", "7 (bench) S 1 7 7 0 -1 4194560 90 0 0 0 x 30 0", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.line))
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("parseStat = %v, %v", got, err)
			}
		})
	}
}

func TestRssAnonSeesTheProcess(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("no /proc here")
	}
	p, err := Start(child(t, "waits"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if _, err := p.ReadLine(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := p.RssAnon(); err != nil || n < 1<<16 || n > 1<<30 {
		t.Errorf("RssAnon = %d, %v", n, err)
	}
}

func TestParseStatus(t *testing.T) {
	for _, tt := range []struct {
		name, status string
		want         int64
		fails        bool
	}{
		{"kibibytes become bytes", "Name:\tx\nVmRSS:\t    9 kB\nRssAnon:\t    7 kB\nRssFile:\t 2 kB\n", 7 << 10, false},
		{"no such line", "Name:\tRssAnon:\n", 0, true},
		{"no number", "Name:\tx\nRssAnon:\t x kB\n", 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStatus([]byte(tt.status))
			if (err != nil) != tt.fails || err == nil && got != tt.want {
				t.Errorf("parseStatus = %d, %v", got, err)
			}
		})
	}
}

func TestWriteLineReachesTheProcess(t *testing.T) {
	c := child(t, "echo")
	p, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	if err := p.WriteLine("hello"); err != nil {
		t.Fatal(err)
	}
	if line, err := p.ReadLine(t.Context()); err != nil || line != "hello" {
		t.Errorf("line %q, error %v", line, err)
	}
}
