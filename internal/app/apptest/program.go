package apptest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

// Turnpike runs the program in an empty environment.
func Turnpike(t *testing.T, args ...string) (status int, out string) {
	t.Helper()
	var both bytes.Buffer
	status = cli.Main(t.Context(), cli.Process{Args: args, Env: NoEnvironment, Stdout: &both, Stderr: &both})
	return status, both.String()
}

// ShowRun returns what "turnpike runs show" prints.
func (g *Gateway) ShowRun(t *testing.T, data, id string) string {
	t.Helper()
	status, out, errs := RunMain(t, "runs", "show", id, "--data", data, "--org", "o")
	if status != 0 {
		t.Fatalf("runs show %s: %d: %s", id, status, errs)
	}
	return out
}

// RunMain runs a command with the harness's environment.
func RunMain(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	env := func(name string) (string, bool) { v, ok := Environment()[name]; return v, ok }
	var stdout, stderr bytes.Buffer
	status = cli.Main(t.Context(), cli.Process{Args: args, Env: env, Stdout: &stdout, Stderr: &stderr})
	return status, stdout.String(), stderr.String()
}

func NoEnvironment(string) (string, bool) { return "", false }

// atATime is how many tests run at the same time: most of them wait.
const atATime = "12"

// Main is TestMain of a package that starts gateways. It fails a package that leaves goroutines behind.
func Main(m *testing.M) {
	// A command may have started this program as its child.
	if len(os.Args) > 1 && slices.Contains([]string{"sandbox-child", pdf.Command, sqltool.Command}, os.Args[1]) {
		os.Exit(cli.Main(context.Background(), cli.Process{Args: os.Args[1:]}))
	}
	flag.Parse()
	remove, err := sandboxtest.ShareCompiled()
	if err := errors.Join(err, setParallelism()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		remove()
		if dir := filepath.Dir(built.path); built.path != "" {
			_ = os.RemoveAll(dir)
		}
		os.Exit(status)
	}))
}

// setParallelism sets -parallel, whose default is the number of processors, if the user did not.
func setParallelism() error {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if set {
		return nil
	}
	return flag.Set("test.parallel", atATime)
}

// built is cmd/turnpike, built by the first test that needs it.
var built = &program{}

// program is a program that is built once.
type program struct {
	once sync.Once
	path string // "" = not built
	err  error
}

// Program returns the path of cmd/turnpike.
func Program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(sandboxtest.ProgramVariable); path != "" {
		return path
	}
	if testing.Short() {
		t.Skip("builds the program")
	}
	built.once.Do(built.build)
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

var Update = flag.Bool("update", false, "write the table of roles of docs/managing.md")

// build builds the program in a directory of its own.
func (p *program) build() {
	dir, err := os.MkdirTemp("", "turnpike-app-")
	if err != nil {
		p.err = err
		return
	}
	p.path = filepath.Join(dir, "turnpike")
	out, err := exec.Command("go", "build", "-o", p.path, "github.com/turnpike-gateway/turnpike/cmd/turnpike").CombinedOutput()
	if err != nil {
		p.err = fmt.Errorf("go build: %w\n%s", err, out)
	}
}
