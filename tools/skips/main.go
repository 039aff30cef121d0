// Skips reads what go test -json prints. It prints the tests that were skipped,
// each with the reason, and all that a failed test or build said. The exit status
// is 1 if something failed or nothing was tested:
//
//	go test -json ./... | skips
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	if err := list(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
}

// event is a line of go test -json.
type event struct{ Action, Package, ImportPath, Test, Output string }

// test names a test of a package; one without a name is the package itself.
type test struct{ pkg, name string }

// list prints what the events tell to out.
func list(in io.Reader, out io.Writer) error {
	said := map[test]string{}
	passed, skipped, failed := 0, 0, 0
	events := json.NewDecoder(in)
	for {
		var e event
		err := events.Decode(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("this is not the output of go test -json: %w", err)
		}
		which := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			said[which] += e.Output
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "build-fail":
			failed++
		case "fail":
			failed++
			fmt.Fprintf(out, "FAILED   %s %s\n%s", e.Package, e.Test, said[which])
		case "skip":
			if e.Test != "" { // a package without tests is not a skipped test
				skipped++
				fmt.Fprintf(out, "skipped  %s %s: %s\n", e.Package, e.Test, reason(said[which]))
			}
		case "pass":
			if e.Test != "" {
				passed++
			}
		}
		if e.Action != "output" {
			delete(said, which)
		}
	}
	fmt.Fprintf(out, "%d tests passed, %d were skipped, %d failed\n", passed, skipped, failed)
	switch {
	case failed > 0:
		return fmt.Errorf("%d failed", failed)
	case passed == 0:
		return errors.New("nothing was tested")
	}
	return nil
}

// reason returns the words of a skipped test without the lines that every test has.
func reason(said string) string {
	var words []string
	for line := range strings.Lines(said) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			_, text, found := strings.Cut(line, ": ") // file.go:12:
			if !found {
				text = line
			}
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}
