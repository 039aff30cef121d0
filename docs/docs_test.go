// Package docs_test runs the documentation. Every fenced block says with its
// first word what it is, and with the words after it what a test does with it:
//
//	sh                    runs, in the page's own directory, after the blocks above it
//	sh server             runs in the background until the page ends; the next block
//	                      begins when it says where it listens
//	sh background         runs beside the blocks below it, as in a terminal of its own; the page
//	                      ends when it does
//	sh needs=node         runs where Node and the packages of conformance/ are; needs_test.go
//	                      finds the other blocks that cannot run without it
//	sh needs=postgres     runs where TURNPIKE_TEST_POSTGRES_URL names a PostgreSQL server, in a
//	                      schema of its own
//	sh elsewhere          is only checked for syntax: it needs the network, or a
//	                      machine of the reader's
//	sh ci                 is only checked to stand in .ci/run, which runs it
//	yaml, json            must be a configuration that the gateway accepts; must be JSON
//	yaml rates            must be a list of prices that the gateway accepts
//	yaml agent            is a file for "turnpike agents apply"; the page applies it
//	go                    must be Go
//	… file=NAME           is written to NAME, for the blocks below it
//	json output           what the block above printed; "…" stands for any value
//	text output           the same, line by line; … stands for any characters, on a line
//	                      of its own for any lines, and two spaces or more for any number
//
// Other languages, and text, are for reading only.
//
// Ports, the keys that a demo prints and the addresses of real providers differ
// on every machine: see session_test.go for what is put in their place.
package docs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// block is one fenced block of a page.
type block struct {
	line  int // of the opening fence
	lang  string
	words []string // after the language
	text  string
}

func (b block) is(word string) bool { return slices.Contains(b.words, word) }

// value returns what stands after name= among the words; empty for nothing.
func (b block) value(name string) string {
	for _, w := range b.words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			return v
		}
	}
	return ""
}

func TestEverySnippetOfTheDocumentationDoesWhatThePageSays(t *testing.T) {
	binary := build(t)
	for _, page := range pages(t) {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			all := blocks(t, page)
			for _, b := range all {
				checkText(t, b)
			}
			newSession(t, binary, all).run(t)
		})
	}
}

// root is the directory of the module, from the one that tests run in.
const root = ".."

// pages are the files whose blocks count, from the root of the module.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*.md")
	if err != nil || len(found) == 0 {
		t.Fatalf("no pages here: %v", err)
	}
	list := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, name := range found {
		list = append(list, "docs/"+name)
	}
	return list
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks returns the fenced blocks of a page.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	return parseBlocks(t, page, read(t, page))
}

func parseBlocks(t *testing.T, page, text string) []block {
	t.Helper()
	var list []block
	var open *block
	number := 0
	for line := range strings.Lines(text) {
		number++
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			words := strings.Fields(fence)
			if len(words) == 0 {
				t.Fatalf("%s:%d: a block without a language: say at least text", page, number)
			}
			open = &block{line: number, lang: words[0], words: words[1:]}
		case isFence:
			list = append(list, *open)
			open = nil
		case open != nil:
			open.text += line
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: this block is never closed", page, open.line)
	}
	return list
}

// checkText judges a block by itself.
func checkText(t *testing.T, b block) {
	t.Helper()
	var err error
	switch {
	case b.is("output"):
	case b.lang == "yaml" && b.is("agent"): // the page applies it
	case b.lang == "yaml" && b.is("rates"):
		_, err = config.ReadRates(b.value("file"), []byte(b.text))
	case b.lang == "yaml":
		_, err = config.Parse(b.value("file"), []byte(b.text), func(string) (string, bool) { return "", false })
	case b.lang == "json" && !json.Valid([]byte(b.text)):
		t.Errorf("line %d: no JSON", b.line)
	case b.lang == "go":
		_, err = format.Source([]byte(b.text))
	case b.lang == "sh" && b.is("ci"):
		checkCI(t, b)
	case b.lang == "sh":
		err = syntax(t, b.text)
	}
	if err != nil {
		t.Errorf("line %d: %v", b.line, err)
	}
}

// checkCI wants every command of the block in .ci/run, word for word.
func checkCI(t *testing.T, b block) {
	t.Helper()
	script := read(t, ".ci/run")
	for line := range strings.Lines(b.text) {
		command := strings.TrimSpace(regexp.MustCompile(`\s+#.*`).ReplaceAllString(line, ""))
		if !strings.Contains(script, command) {
			t.Errorf("line %d: .ci/run does not run %q", b.line, command)
		}
	}
}

func syntax(t *testing.T, script string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-n")
	cmd.Stdin = strings.NewReader(script)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("no shell script: %w: %s", err, stderr.String())
	}
	return nil
}
