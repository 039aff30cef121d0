package make

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
)

// The reader of PDFs is compiled at the start if an org offers web_scrape, and only then.
func TestTheReaderOfPDFsIsPreparedAtTheStart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program of this test is a shell script")
	}
	for name, c := range map[string]struct {
		tools []org.BuiltinTool
		want  bool
	}{
		"no tools":     {nil, false},
		"another tool": {[]org.BuiltinTool{{Name: builtin.HTTPRequest}}, false},
		"not enabled":  {[]org.BuiltinTool{{Name: builtin.WebScrape, Disabled: true}}, false},
		"it reads":     {[]org.BuiltinTool{{Name: builtin.HTTPRequest}, {Name: builtin.WebScrape}}, true},
	} {
		dir := t.TempDir()
		program, started := filepath.Join(dir, "program"), filepath.Join(dir, "started")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n: > '"+started+"'\nexit 3\n"), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		reader, err := pdf.New(pdf.Options{Program: []string{program}, Cache: filepath.Join(dir, "cache")})
		if err != nil {
			t.Fatal(err)
		}
		b := New(Options{
			PDF: reader, Log: slog.New(slog.DiscardHandler), Runtime: func(string) org.Runtime { return org.Runtime{BuiltinTools: c.tools} },
		})
		b.Start(context.Background(), slices.Values([]string{"acme"}))
		b.preparing.Wait()
		b.Close()
		if _, err := os.Stat(started); (err == nil) != c.want {
			t.Errorf("%s: it was started: %v, want %v", name, err == nil, c.want)
		}
	}
}
