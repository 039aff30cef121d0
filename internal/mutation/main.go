// Mutation makes deliberate mistakes in the gateway, one at a time, and runs the
// tests that must notice. A mistake that no test notices is a promise that nobody
// checks.
//
//	go run ./internal/mutation               all of them
//	go run ./internal/mutation -sample 4     some, others at every commit
//	go run ./internal/mutation lease         those whose name contains the word
//
// The source files stay as they are: the compiler gets the changed text through
// go test -overlay. The exit status is 1 if a mistake was not noticed.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/soak"
)

func main() {
	sample := flag.Int("sample", 0, "make only this many mistakes, chosen by TURNPIKE_SEED or the current commit; 0 = all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, *sample, flag.Args())
	stop()
	os.Exit(status)
}

const (
	testTime = 90 * time.Second // bounds the test of one mistake, which may make it hang
	patience = 6 * time.Minute  // bounds that and compiling, which takes minutes if nothing is in the compiler's cache
)

func run(ctx context.Context, sample int, words []string) (status int) {
	root, err := rootDir(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	chosen := choose(mutations(), words)
	if sample > 0 {
		seed := cmp.Or(os.Getenv(soak.SeedVariable), commit(ctx, root))
		fmt.Printf("%s=%s chooses the sample\n", soak.SeedVariable, seed)
		chosen = soak.Pick(seed, chosen, sample, nil)
	}
	if len(chosen) == 0 {
		fmt.Fprintf(os.Stderr, "no mutation has a name that contains %q\n", words)
		return 2
	}
	code, err := readSource(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	missed := 0
	for i, m := range chosen {
		began := time.Now()
		verdict, output := code.try(ctx, m)
		fmt.Printf("%2d/%d  %-10s %5.1f s  %s  (%s)\n", i+1, len(chosen), verdict, time.Since(began).Seconds(), m.Name, m.Test)
		if ctx.Err() != nil {
			return 2
		}
		if verdict != caught {
			missed++
			fmt.Println(output)
		}
	}
	fmt.Printf("%d mutations, %d caught, %d not\n", len(chosen), len(chosen)-missed, missed)
	if missed > 0 {
		return 1
	}
	return 0
}

// verdict is what the tests said of a mutation.
type verdict string

const (
	caught  verdict = "caught"
	missing verdict = "NOT CAUGHT" // the tests passed
	broken  verdict = "BROKEN"     // the mutation does not fit the source, or does not compile, or no test ran
)

// try runs the mutation's test on the changed source.
func (s source) try(ctx context.Context, m mutation) (verdict, string) {
	path, changed, err := s.apply(m)
	if err != nil {
		return broken, err.Error()
	}
	pkg, err := s.packageOf(m)
	if err != nil {
		return broken, err.Error()
	}
	dir, err := os.MkdirTemp("", "mutation")
	if err != nil {
		return broken, err.Error()
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := writeOverlay(dir, path, changed)
	if err != nil {
		return broken, err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count=1", "-run", "^"+m.Test+"$",
		"-timeout", testTime.String(), ".")
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), soak.DepthVariable+"=job") // as CI, which must notice it
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return missing, string(out)
	case bytes.Contains(out, []byte("--- FAIL: ")), bytes.Contains(out, []byte("panic: ")), bytes.Contains(out, []byte("fatal error: ")):
		return caught, ""
	}
	return broken, string(out)
}

// writeOverlay writes the file that go test -overlay reads.
func writeOverlay(dir, original string, changed []byte) (string, error) {
	replacement := filepath.Join(dir, "changed.go")
	if err := os.WriteFile(replacement, changed, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: replacement}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// choose returns the mutations whose name contains one of the words; all if there
// are none.
func choose(all []mutation, words []string) []mutation {
	if len(words) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(m mutation) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(m.Name, w) })
	})
}

func rootDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// commit returns the current commit, "" outside a repository.
func commit(ctx context.Context, root string) string {
	cmd := exec.CommandContext(ctx, "git", "rev-parse", "HEAD")
	cmd.Dir = root
	out, _ := cmd.Output()
	return strings.TrimSpace(string(out))
}
