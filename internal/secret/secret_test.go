package secret_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

const canary = "CANARY-secret-7f3a"

func resolver(env map[string]string) *secret.Resolver {
	return secret.NewResolver(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct{ in, ref, literal, err string }{
		"an empty text":                               {},
		"plain text is literal":                       {in: "abc", literal: "abc"},
		"a reference":                                 {in: "env:TOKEN", ref: "env:TOKEN"},
		"a reference at the end of a header":          {in: "Bearer secret:gh_token", literal: "Bearer ", ref: "secret:gh_token"},
		"a path may have spaces":                      {in: "file:/a b/c", ref: "file:/a b/c"},
		"a kind inside a word is literal":             {in: "my-env:x http://h", literal: "my-env:x http://h"},
		"text after a variable is refused":            {in: "env:TOKEN tail", err: "the name after env: must match"},
		"a second reference is refused":               {in: "env:A env:B", err: "the name after env: must match"},
		"a second reference after a path is refused":  {in: "file:/a env:B", err: "more than one reference"},
		"a variable that looks like a key is refused": {in: "env:sk-" + canary, err: "the name after env: must match"},
		"an empty path is refused":                    {in: "file:", err: "file: needs a path"},
		"a path beyond the limit is refused":          {in: "file:" + strings.Repeat("a", secret.MaxPath+1), err: "longer than 4096"},
		"a path at the limit is taken":                {in: "file:" + strings.Repeat("a", secret.MaxPath), ref: "file:" + strings.Repeat("a", secret.MaxPath)},
		"a line break is refused":                     {in: "a\r\nX: " + canary, err: "control character"},
		"an invalid vault entry name is refused":      {in: "secret:../x", err: "the name after secret: must match"},
		"an upper-case kind is literal":               {in: "ENV:TOKEN", literal: "ENV:TOKEN"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := secret.Parse(c.in)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), canary) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil || string(got.Ref()) != c.ref || got.Literal().Reveal() != c.literal {
				t.Fatalf("got %q + %q, %v", got.Literal().Reveal(), got.Ref(), err)
			}
			if got.IsZero() != (c.in == "") || got.IsLiteral() != (c.ref == "" && c.in != "") {
				t.Errorf("IsZero %v, IsLiteral %v", got.IsZero(), got.IsLiteral())
			}
		})
	}
}

func TestParseRef(t *testing.T) {
	ref, err := secret.ParseRef("file:/a:b")
	if err != nil || ref.Kind() != secret.File || ref.Name() != "/a:b" {
		t.Errorf("%v %v %v", ref.Kind(), ref.Name(), err)
	}
	for _, bad := range []string{"", "TOKEN", "vault:x", "Bearer env:X"} {
		if _, err := secret.ParseRef(bad); err == nil {
			t.Errorf("%q was taken as a reference", bad)
		}
	}
}

// References are resolved when a request is sent. // D18
func TestResolve(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "file:" + path
	}
	r := resolver(map[string]string{"TOKEN": canary, "EMPTY": "", "LINES": canary + "\nx"})
	for name, c := range map[string]struct{ in, want, err string }{
		"a literal is itself":             {in: "Basic abc", want: "Basic abc"},
		"a variable":                      {in: "env:TOKEN", want: canary},
		"a variable after a scheme":       {in: "Bearer env:TOKEN", want: "Bearer " + canary},
		"a variable that is not set":      {in: "env:NOPE", err: "environment variable NOPE is not set; set it where turnpike starts"},
		"a variable that is empty":        {in: "env:EMPTY", err: "env:EMPTY is empty"},
		"a line break is refused":         {in: "env:LINES", err: "env:LINES has a control character"},
		"a file without its last newline": {in: write("a", canary+"\n"), want: canary},
		"a file from Windows":             {in: write("b", canary+"\r\n"), want: canary},
		"only one newline is removed":     {in: write("c", canary+"\n\n"), err: "has a control character"},
		"a file at the limit":             {in: write("d", strings.Repeat("x", secret.MaxSize)+"\n"), want: strings.Repeat("x", secret.MaxSize)},
		"a file one byte over the limit":  {in: write("e", strings.Repeat("x", secret.MaxSize+1)), err: "is larger than 65536 bytes"},
		"a file far over the limit":       {in: write("f", strings.Repeat("x", 3*secret.MaxSize)), err: "is larger than 65536 bytes"},
		"an empty file":                   {in: write("g", "\n"), err: "is empty"},
		"a missing file":                  {in: "file:" + filepath.Join(dir, "none"), err: "no such file"},
		"a vault entry without a vault":   {in: "secret:gh", err: "secret:gh: " + secret.ErrNoVault.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := secret.Parse(c.in)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Resolve(t.Context(), text)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), canary) {
					t.Fatalf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil || got.Reveal() != c.want {
				t.Fatalf("%d bytes, %v", len(got.Reveal()), err)
			}
		})
	}
}

func TestResolveWithoutVault(t *testing.T) {
	text, _ := secret.Parse("secret:x")
	if _, err := resolver(nil).Resolve(t.Context(), text); !errors.Is(err, secret.ErrNoVault) {
		t.Error(err)
	}
}

// A vault entry is resolved again for every request. // D18
func TestVaultEntryIsResolvedOnEveryCall(t *testing.T) {
	text, err := secret.Parse("Bearer secret:gh")
	if err != nil {
		t.Fatal(err)
	}
	content, missing := canary, errors.New("there is no such secret")
	r := resolver(nil).WithVault(func(_ context.Context, name string) (secret.Value, error) {
		if name != "gh" || content == "" {
			return secret.Value{}, missing
		}
		return secret.NewValue(content), nil
	})
	for _, c := range []struct{ content, want, err string }{
		{canary, "Bearer " + canary, ""},
		{canary + "2", "Bearer " + canary + "2", ""},
		{canary + "\r\nX: y", "", "secret:gh has a control character"},
		{"", "", "secret:gh: there is no such secret"},
	} {
		content = c.content
		got, err := r.Resolve(t.Context(), text)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), canary) {
				t.Errorf("error %v, want one with %q", err, c.err)
			}
		} else if err != nil || got.Reveal() != c.want {
			t.Errorf("%d bytes, %v", len(got.Reveal()), err)
		}
	}
	if _, err := r.Resolve(t.Context(), text); !errors.Is(err, missing) {
		t.Errorf("error %v does not wrap the cause", err)
	}
}

// No way of printing reveals a credential. // K06
func TestNothingPrintsACredential(t *testing.T) {
	text, err := secret.Parse(canary + " env:TOKEN")
	if err != nil {
		t.Fatal(err)
	}
	plain, _ := secret.Parse(canary)
	type inside struct {
		Value  secret.Value
		Text   secret.Text
		hidden secret.Value
		also   secret.Text
		plain  secret.Text
	}
	all := inside{secret.NewValue(canary), text, secret.NewValue(canary), text, plain}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, x := range []any{all, &all, all.Value, all.Text, plain, []any{all}, map[string]secret.Value{"k": all.Value}} {
			fmt.Fprintf(&out, verb+"\n", x)
		}
	}
	for _, x := range []any{all, all.Value, all.Text, plain} {
		data, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(data)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", x)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", x)
	}
	if shown := out.String(); strings.Contains(shown, canary) || strings.Contains(shown, fmt.Sprintf("%x", canary)) {
		t.Errorf("a credential was printed:\n%s", shown)
	}
	if got := fmt.Sprint(text); got != "[redacted] env:TOKEN" {
		t.Errorf("Text prints as %q", got)
	}
	if got := fmt.Sprintf("%+v", all.Value); got != "[redacted]" {
		t.Errorf("Value prints as %q", got)
	}
}

func TestEqual(t *testing.T) {
	a, _ := secret.Parse("Bearer env:A")
	b, _ := secret.Parse("Bearer env:A")
	c, _ := secret.Parse("Token env:A")
	if !a.Equal(b) || a.Equal(c) {
		t.Error("Text.Equal does not compare literal and reference")
	}
	if !secret.NewValue("x").Equal(secret.NewValue("x")) || secret.NewValue("x").Equal(secret.Value{}) {
		t.Error("Value.Equal does not compare the content")
	}
	if !(secret.Value{}).IsZero() || (secret.Value{}).Reveal() != "" {
		t.Error("the zero value is not empty")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "env:A", "Bearer secret:x", "file:/a b env:X", "a\x00b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := secret.Parse(s)
		if err != nil {
			return
		}
		if whole := text.Literal().Reveal() + string(text.Ref()); whole != s {
			t.Errorf("%q became %q", s, whole)
		}
	})
}
