//go:build unix

package crash_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binaryVariable names the gateway that kills itself: one that was built with the tag crashtest before, or the one that
// withBinary builds.
const binaryVariable = "TURNPIKE_CRASH_BINARY"

// atATime is how many gateways are tortured at the same time: most of them wait.
const atATime = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atATime); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status, err := withBinary(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

// withBinary runs the tests with the gateway that TURNPIKE_CRASH_BINARY names, or with one that it builds. That the
// gateway is made of the module's files is known to nobody but these tests: what they have
// looked at decides whether go test may repeat an old result.
func withBinary(tests func() int) (int, error) {
	if binary := os.Getenv(binaryVariable); binary != "" {
		if _, err := os.Stat(binary); err != nil {
			return 0, fmt.Errorf("%s: %w", binaryVariable, err)
		}
		return tests(), nil
	}
	for _, dir := range []string{"cmd", "event", "internal", "item", "model", "tool"} {
		look := func(string, os.DirEntry, error) error { return nil }
		if err := filepath.WalkDir(filepath.Join("..", "..", dir), look); err != nil {
			return 0, err
		}
	}
	dir, err := os.MkdirTemp("", "turnpike-crash-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary := filepath.Join(dir, "turnpike")
	build := exec.Command("go", "build", "-C", filepath.Join("..", ".."), "-tags", "crashtest", "-ldflags=-s -w",
		"-o", binary, "./cmd/turnpike")
	if output, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("building the gateway: %w\n%s", err, output)
	}
	if err := os.Setenv(binaryVariable, binary); err != nil {
		return 0, err
	}
	return tests(), nil
}
