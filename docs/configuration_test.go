package docs_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

const (
	beginKeys = "<!-- The rest of this page is generated from the parser's own table: go test ./docs -run Configuration -update -->\n"
	keysPage  = "docs/configuration.md"
)

func TestTheConfigurationPageListsWhatTheParserKnows(t *testing.T) {
	page := read(t, keysPage)
	prose, listed, found := strings.Cut(page, beginKeys)
	if !found {
		t.Fatalf("%s has lost the line %q", keysPage, beginKeys)
	}
	want := keyTables(config.Keys())
	if updating() {
		if err := os.WriteFile(filepath.Join(root, keysPage), []byte(prose+beginKeys+want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if listed != want {
		t.Errorf("%s is not what the parser's table says: run go test ./docs -run Configuration -update", keysPage)
	}
}

// keyTables writes one table for each object of the file, in the parser's
// order.
func keyTables(keys []config.KeyDoc) string {
	var b strings.Builder
	var order []string
	inside := map[string][]config.KeyDoc{}
	for _, k := range keys {
		parent := parentOf(k.Path)
		if inside[parent] == nil {
			order = append(order, parent)
		}
		inside[parent] = append(inside[parent], k)
	}
	for _, parent := range order {
		heading := "`" + parent + "`"
		if parent == "" {
			heading = "The file"
		}
		fmt.Fprintf(&b, "\n## %s\n\n| key | value | default | change | |\n|---|---|---|---|---|\n", heading)
		for _, k := range inside[parent] {
			writeKey(&b, k)
		}
	}
	return b.String()
}

func writeKey(b *strings.Builder, k config.KeyDoc) {
	doc := k.Doc
	if k.Env != "" {
		doc += " Variable: `" + k.Env + "`."
	}
	change := "restart"
	switch {
	case k.Live:
		change = "live"
	case k.Type == "map": // the keys inside differ
		change = ""
	}
	name := k.Path[strings.LastIndex(k.Path, ".")+1:]
	fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", name, cell(k.Type), cell(k.Default), change, cell(doc))
}

// parentOf returns the path of the object that a key is in: orgs[].runtime for
// orgs[].runtime.deadline.
func parentOf(path string) string {
	if i := strings.LastIndex(path, "."); i >= 0 {
		return path[:i]
	}
	return ""
}

// cell keeps a text from ending its table cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "<", "&lt;").Replace(s)
}

// updating reports whether the test was asked to write the page.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

func TestMain(m *testing.M) {
	flag.Bool("update", false, "write the generated part of docs/configuration.md")
	os.Exit(m.Run())
}
