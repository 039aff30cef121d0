package app_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

func TestMain(m *testing.M) { // O01
	if len(os.Args) > 1 && (os.Args[1] == "sandbox-child" || os.Args[1] == pdf.Command || os.Args[1] == sqltool.Command) { // a command has started this program as its child
		os.Exit(cli.Main(context.Background(), cli.Process{Args: os.Args[1:]}))
	}
	flag.Parse()
	if err := setParallelism(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		if dir := filepath.Dir(built.path); built.path != "" {
			_ = os.RemoveAll(dir)
		}
		os.Exit(status)
	}))
}

// atATime is how many tests run at the same time: most of them wait.
const atATime = "12"

// setParallelism sets -parallel, whose default is the number of processors, if the user did not.
func setParallelism() error {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if set {
		return nil
	}
	return flag.Set("test.parallel", atATime)
}

// programVariable names a program that was built already.
const programVariable = "TURNPIKE_TEST_PROGRAM"

// built is cmd/turnpike, built by the first test that needs it.
var built struct {
	once sync.Once
	path string // "" = not built
	err  error
}

// program returns the path of cmd/turnpike.
func program(t *testing.T) string {
	t.Helper()
	if path := os.Getenv(programVariable); path != "" {
		return path
	}
	if testing.Short() {
		t.Skip("builds the program")
	}
	built.once.Do(func() {
		dir, err := os.MkdirTemp("", "turnpike-app-")
		if err != nil {
			built.err = err
			return
		}
		built.path = filepath.Join(dir, "turnpike")
		out, err := exec.Command("go", "build", "-o", built.path, "github.com/turnpike-gateway/turnpike/cmd/turnpike").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}
