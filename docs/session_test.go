package docs_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// session runs the blocks of one page, in order, as one shell script in a
// directory of its own:
//
//	block 1  { …; } > 1.out        its variables stay set for the next
//	block 2  ( …; ) > 2.out &      a server; the script waits for its address
//	block 3  { …; } > 3.out        compared with block 4, "json output"
//	block 5  ( …; ) > 5.out &      in the background; the script waits for it at its end
//
// There is no key of a provider in the environment: a page that needs one says
// what to set. What a test cannot have is replaced: ports by free ones, OpenAI's API by
// the demo model, Anthropic's and Google's by ones that say hello, and the demo's key, which the page writes as
// tp_…, by the one that the demo has printed.
type session struct {
	dir    string
	blocks []block
	skips  []string // why a block does not run; "" = it does
	ports  *strings.Replacer
	back   *strings.Replacer
	script bytes.Buffer
	env    []string
}

// patience is how long a page may take.
const patience = 90 * time.Second

// build returns the program for all pages: a link to the one that TURNPIKE_TEST_PROGRAM names, or one that it builds.
func build(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "turnpike")
	if program := os.Getenv("TURNPIKE_TEST_PROGRAM"); program != "" {
		if err := os.Symlink(program, binary); err != nil {
			t.Fatal(err)
		}
		return binary
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/turnpike")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

func newSession(t *testing.T, binary string, all []block) *session {
	t.Helper()
	s := &session{dir: t.TempDir(), blocks: all}
	model := httptest.NewServer(demo.New(demo.Options{}))
	t.Cleanup(model.Close)
	claude := upstreamtest.New(turnpiketest.NewScript(t, "text Hello."), upstreamtest.Options{Strict: true})
	t.Cleanup(claude.Close)
	google := upstreamtest.New(turnpiketest.NewScript(t, "text Hello."), upstreamtest.Options{Strict: true})
	t.Cleanup(google.Close)
	database, schema := s.findPostgres(t)
	s.replacePorts(t, []string{pageDatabase, database, pageSchema, schema}, "https://api.openai.com", model.URL,
		"https://api.anthropic.com", strings.TrimSuffix(claude.URL, "/v1"),
		"https://generativelanguage.googleapis.com", strings.TrimSuffix(google.URL, "/v1"))
	s.env = []string{
		"PATH=" + filepath.Dir(binary) + string(os.PathListSeparator) + os.Getenv("PATH"), "HOME=" + s.dir,
		"NO_UPDATE_NOTIFIER=1", "npm_config_offline=true",
	}
	s.skips = skips(all, machine{node: s.findNode(t), postgres: database != "", missing: func(programs []string) []string {
		missing, err := notInstalled(t.Context(), s.env, programs)
		if err != nil {
			t.Fatal(err)
		}
		return missing
	}})
	return s
}

// The database and the schema of a page that needs PostgreSQL. It is tested in a schema of its own.
const (
	pageDatabase = "postgres://turnpike@db.example.com/turnpike"
	pageSchema   = "turnpike_prod"
)

// findPostgres returns the database and the schema for the page; empty if it needs none, or if there is none.
func (s *session) findPostgres(t *testing.T) (url, schema string) {
	t.Helper()
	needs := func(b block) bool { return b.value("needs") == "postgres" }
	if os.Getenv("TURNPIKE_TEST_POSTGRES_URL") == "" || !slices.ContainsFunc(s.blocks, needs) {
		return "", ""
	}
	o := postgrestest.New(t)
	return o.URL, o.Schema
}

// replacePorts gives the page a free port for each that it names. Each second element of both, if it is not empty, takes the place of
// the one before it, and is shown as that in what the page prints; those of more are not printed.
func (s *session) replacePorts(t *testing.T, both []string, more ...string) {
	t.Helper()
	var there, back []string
	for pair := range slices.Chunk(both, 2) {
		if pair[1] != "" {
			there, back = append(there, pair[0], pair[1]), append(back, pair[1], pair[0])
		}
	}
	seen := map[string]bool{}
	for _, b := range s.blocks {
		for _, m := range regexp.MustCompile(`127\.0\.0\.1:([1-9][0-9]{3,4})`).FindAllStringSubmatch(b.text, -1) {
			if port := m[1]; !seen[port] {
				seen[port] = true
				free := strconv.Itoa(upstreamtest.FreePort(t))
				there = append(there, "127.0.0.1:"+port, "127.0.0.1:"+free, "PORT="+port, "PORT="+free)
				back = append(back, "127.0.0.1:"+free, "127.0.0.1:"+port)
			}
		}
	}
	s.ports, s.back = strings.NewReplacer(append(there, more...)...), strings.NewReplacer(back...)
}

// findNode makes the packages of conformance/ those of the page, and reports
// whether Node and they are there.
func (s *session) findNode(t *testing.T) bool {
	t.Helper()
	modules, err := filepath.Abs(filepath.Join(root, "conformance", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	preload, err := filepath.Abs("testdata/loopback.mjs")
	if err != nil {
		t.Fatal(err)
	}
	_, noNode := exec.LookPath("node")
	_, noModules := os.Stat(modules)
	if noNode != nil || noModules != nil {
		return false
	}
	s.env = append(s.env, "NODE_OPTIONS=--import="+preload)
	if err := os.Symlink(modules, filepath.Join(s.dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return true
}

// run runs the page and compares what it printed with what it says.
func (s *session) run(t *testing.T) {
	t.Helper()
	if !s.write(t) {
		return
	}
	for _, program := range []string{"cat", "grep", "head", "sleep"} { // of the prelude
		if _, err := exec.LookPath(program); err != nil {
			skip(t, "not installed: "+program)
			return
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-s")
	cmd.Dir, cmd.Env, cmd.Stdin = s.dir, s.env, &s.script
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the servers end with the script
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what has not ended by itself
	if err != nil {
		t.Fatalf("the page's commands failed: %v\n%s%s", err, out.String(), s.lastOutput())
	}
	for i, b := range s.blocks {
		if b.is("output") && s.runs(i-1) {
			compare(t, b, s.output(t, i-1))
		}
	}
}

// write writes the script and the files of the page, and reports whether there
// is anything to run.
func (s *session) write(t *testing.T) (found bool) {
	t.Helper()
	s.script.WriteString(prelude)
	for i, b := range s.blocks {
		if name := b.value("file"); name != "" {
			if err := os.WriteFile(filepath.Join(s.dir, name), []byte(s.fill(b.text)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !b.isCommand() {
			continue
		}
		if !s.runs(i) {
			t.Run(fmt.Sprintf("line %d", b.line), func(t *testing.T) { skip(t, s.skips[i]) })
			continue
		}
		found = true
		switch {
		case b.is("background"):
			fmt.Fprintf(&s.script, "(\n%s) > %d.out 2>&1 &\nbackground=\"$background $!\"\n", s.fill(b.text), i)
		case b.is("server"):
			fmt.Fprintf(&s.script, "(\n%s) > %d.out 2>&1 &\nservers=\"$servers $!\"; await %d.out\n", s.fill(b.text), i, i)
		default:
			fmt.Fprintf(&s.script, "{\n%s} > %d.out\n", s.fill(b.text), i)
		}
	}
	s.script.WriteString("for one in $background; do wait $one; done\n")
	return found
}

// prelude stops the servers when the script ends, and waits for a server to say
// that it listens; a demo also says its key.
const prelude = `set -eu
servers= background=
trap 'for s in $servers $background; do kill $s 2>/dev/null || true; done' EXIT
await() {
	n=0
	until grep -qE 'listens on|listening on|Serving until' "$1"; do
		n=$((n + 1))
		if [ $n -gt 300 ]; then echo "no server in $1:"; cat "$1"; exit 1; fi
		sleep 0.1
	done
	key=$(grep -oE 'tp_[a-z2-7]{26}' "$1" | head -n 1) || true
}
`

func (s *session) runs(i int) bool { return s.blocks[i].isCommand() && s.skips[i] == "" }

// fill puts the machine's own things in the place of those of the page.
func (s *session) fill(text string) string {
	text = s.ports.Replace(text)
	text = strings.ReplaceAll(text, "go run ./cmd/turnpike", "turnpike")
	if address := s.ports.Replace("127.0.0.1:8080"); strings.Contains(text, "turnpike demo") {
		text = strings.ReplaceAll(text, "turnpike demo", "turnpike demo --listen "+address)
	}
	return strings.ReplaceAll(text, "tp_…", "$key")
}

// farewell is what a gateway may say when the page ends and it is stopped.
var farewell = regexp.MustCompile(`(?m)^time=\S+ level=INFO msg="stopping: .*\n`)

func (s *session) output(t *testing.T, i int) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("%d.out", i)))
	if err != nil {
		t.Fatal(err)
	}
	return s.back.Replace(farewell.ReplaceAllString(string(text), ""))
}

// lastOutput is what the blocks printed, for a failure.
func (s *session) lastOutput() string {
	var all strings.Builder
	for i, b := range s.blocks {
		if text, err := os.ReadFile(filepath.Join(s.dir, fmt.Sprintf("%d.out", i))); err == nil {
			fmt.Fprintf(&all, "-- line %d --\n%s", b.line, text)
		}
	}
	return all.String()
}

// skip skips the page or the block of t, or fails where that is forbidden.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1" {
		t.Error(why)
		return
	}
	t.Skip(why)
}
