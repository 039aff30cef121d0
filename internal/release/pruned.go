package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// noTraceTag leaves out the trace pages of grpc, which the program never serves. They use html/template.
const noTraceTag = "grpcnotrace"

// largestProgram is the limit for a binary without Python, in bytes.
const largestProgram = 56_500_000

// checkSize returns an error if a binary with so many bytes is too large.
func (r *release) checkSize(size int) error {
	if r.python != "" {
		python, err := os.Stat(r.python)
		if err != nil {
			return err
		}
		size -= int(python.Size())
	}
	if size > largestProgram {
		return fmt.Errorf("the binary has %d bytes without Python; the limit is %d. Find the dependency that is new or has grown", size, largestProgram)
	}
	return nil
}

// The linker keeps every exported method as soon as the program can look one up by a name that is not a constant, as
// text/template does. This makes the binary 12 MB larger. With -dumpdep the linker prints a line "A -> B" for each
// reference that it follows, and marks functions that look up methods.
const lookup = "<ReflectMethod>"

// checkPruned returns an error if the linker, which printed these references, had to keep every exported method. The
// error names the shortest way from the start of the program to the function that looks up methods.
func checkPruned(references []byte) error {
	if !bytes.Contains(references, []byte(lookup)) {
		return nil
	}
	const start = "_" // as the linker names what keeps the entry point
	from := map[string]string{start: ""}
	next := map[string][]string{}
	for line := range strings.Lines(string(references)) {
		if a, b, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " -> "); ok {
			next[a] = append(next[a], b)
		}
	}
	for queue := []string{start}; len(queue) > 0; queue = queue[1:] {
		a := queue[0]
		if strings.Contains(a, lookup) {
			return fmt.Errorf("the linker keeps every exported method: it reaches a function that looks up methods by name:\n%s", way(from, a))
		}
		for _, b := range next[a] {
			if _, seen := from[b]; !seen {
				from[b] = a
				queue = append(queue, b)
			}
		}
	}
	return errors.New("the linker keeps every exported method, and prints no way to the function that looks up methods")
}

// way returns the steps to the last one, a line each.
func way(from map[string]string, last string) string {
	var steps []string
	for ; last != ""; last = from[last] {
		steps = append(steps, "\t"+last)
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n")
}

// withoutReferences returns what "go build" has to say besides the references: messages of the compiler and the linker.
func withoutReferences(printed []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(printed)) {
		if !strings.Contains(line, " -> ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
