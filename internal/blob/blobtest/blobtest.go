// Package blobtest is the suite of tests for the adapters of package blob.
package blobtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Open returns a bucket of an org with the settings of the adapter, and these. The same names open the same bucket.
type Open func(t *testing.T, orgID string, settings org.Bucket) blob.Bucket

// Run runs the suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		// What was written is what is read, with its size and digest, also an empty file, and also after it was replaced.
		{"a file is read as it was written", written},
		// A list has the paths in the order of their bytes, whatever directories the adapter makes of them; its parts
		// together are the whole.
		{"lists are in order and in parts", listed},
		// No path leads out of the bucket, and each file has one path.
		{"paths are checked", paths},
		// Buckets of two orgs, and two buckets of an org, have nothing in common.
		{"orgs and buckets are apart", apart},
		// The quota is counted before the bytes are written, replaced and deleted files give their room back.
		{"quotas", quotas},
		// What does not exist is ErrNotFound.
		{"missing files", missing},
		// An operation whose context has ended does nothing.
		{"a context that has ended", ended},
		// Files that are put at the same time are all there, whole, and counted once.
		{"at the same time", concurrent},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

func put(t *testing.T, b blob.Bucket, path, text string) blob.Info {
	t.Helper()
	info, err := b.Put(t.Context(), path, strings.NewReader(text))
	if err != nil {
		t.Fatalf("put %s: %v", path, err)
	}
	return info
}

func read(t *testing.T, b blob.Bucket, path string) (string, blob.Info) {
	t.Helper()
	content, info, err := b.Open(t.Context(), path)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	text, err := io.ReadAll(content)
	if err := errors.Join(err, content.Close()); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return string(text), info
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func written(t *testing.T, open Open) {
	b := open(t, "a", org.Bucket{Name: "files"})
	for _, text := range []string{"hello", "", "\x00\xff binary\r\n", strings.Repeat("long ", 100_000)} {
		for _, path := range []string{"one.txt", "dir/ü €.txt", "dir/..not.parent", "d.d/f.f", strings.Repeat("x", blob.MaxName), "CON", "a:b*?<>|\"%41+&=#"} {
			info := put(t, b, path, text)
			got, opened := read(t, b, path)
			stat, err := b.Stat(t.Context(), path)
			if got != text || err != nil {
				t.Fatalf("%s: %d bytes, want %d; %v", path, len(got), len(text), err)
			}
			for what, i := range map[string]blob.Info{"put": info, "open": opened, "stat": stat} {
				if i.Path != path || i.Size != int64(len(text)) || i.SHA256 != digest(text) || i.Modified.IsZero() {
					t.Errorf("%s: %s: %+v", path, what, i)
				}
			}
		}
	}
}

func list(t *testing.T, b blob.Bucket, q blob.Query) (out []string, more bool) {
	t.Helper()
	page, err := b.List(t.Context(), q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	for _, f := range page.Files {
		if f.Size != int64(len(f.Path)) || f.Modified.IsZero() {
			t.Errorf("%+v", f)
		}
		out = append(out, f.Path)
	}
	return out, page.More
}

func listed(t *testing.T, open Open) {
	b := open(t, "a", org.Bucket{Name: "files"})
	if got, more := list(t, b, blob.Query{Limit: 10}); got != nil || more {
		t.Errorf("an empty bucket has %v", got)
	}
	all := []string{"a", "a-b", "a.b", "a/b", "a/b/c", "a/b0", "a/c", "a0", "b/x", "B", "é", "z/1", "z/10", "z/2", "~"}
	for _, path := range all {
		put(t, b, path, path)
	}
	slices.Sort(all)
	for _, prefix := range []string{"", "a", "a/", "a/b", "a/b/", "z/1", "x", "é", "a-", "b/x", "b/xx"} {
		var want []string
		for _, path := range all {
			if strings.HasPrefix(path, prefix) {
				want = append(want, path)
			}
		}
		got, more := list(t, b, blob.Query{Prefix: prefix, Limit: blob.MaxLimit})
		if diff := cmp.Diff(want, got); diff != "" || more {
			t.Errorf("prefix %q:\n%s", prefix, diff)
		}
		for limit := 1; limit <= 4; limit++ {
			var after, skipped []string
			for q, more := (blob.Query{Prefix: prefix, Limit: limit}), true; more; q.After = after[max(0, len(after)-1)] {
				var part []string
				if part, more = list(t, b, q); part == nil {
					break
				}
				after = append(after, part...)
			}
			for q, more := (blob.Query{Prefix: prefix, Limit: limit}), true; more; q.Offset += limit {
				var part []string
				part, more = list(t, b, q)
				skipped = append(skipped, part...)
			}
			if diff := cmp.Diff(want, after) + cmp.Diff(want, skipped); diff != "" {
				t.Errorf("prefix %q in parts of %d:\n%s", prefix, limit, diff)
			}
		}
	}
	if got, more := list(t, b, blob.Query{After: "a/b/zz", Offset: 1, Limit: 2}); !slices.Equal(got, []string{"a/c", "a0"}) || !more {
		t.Errorf("after a path that does not exist: %v", got)
	}
	if got, more := list(t, b, blob.Query{Offset: 1000, Limit: 2}); got != nil || more {
		t.Errorf("beyond the end: %v", got)
	}
	for _, q := range []blob.Query{{}, {Limit: 1001}, {Limit: 1, Offset: -1}, {Limit: 1, Offset: blob.MaxOffset + 1}, {Limit: 1, Prefix: "../"}, {Limit: 1, Prefix: "/"}, {Limit: 1, After: "a/"}} {
		if _, err := b.List(t.Context(), q); !isArgument(err) {
			t.Errorf("%+v: %v", q, err)
		}
	}
}

func isArgument(err error) bool {
	var wrong *blob.ArgumentError
	return errors.As(err, &wrong)
}

// Refused are paths that no bucket has.
func Refused() []string {
	return []string{
		"", "/", "/etc/passwd", "..", ".", "../x", "a/..", "a/../../b", "a/./b", "a//b", "a/", "//a", `a\b`, `..\x`, "a\x00b", "a\nb", "a\x7fb", "a\u0085b", "a\u202eb", "\ufeffa",
		"e\u0301", "\xff", "a/\xc3(", strings.Repeat("x", blob.MaxName+1), strings.Repeat("x/", blob.MaxPath/2) + "y",
	}
}

func paths(t *testing.T, open Open) {
	b := open(t, "a", org.Bucket{Name: "files"})
	put(t, b, "x", "x")
	for _, path := range Refused() {
		_, put := b.Put(t.Context(), path, strings.NewReader("no"))
		_, stat := b.Stat(t.Context(), path)
		_, _, opened := b.Open(t.Context(), path)
		for what, err := range map[string]error{"put": put, "stat": stat, "open": opened, "delete": b.Delete(t.Context(), path)} {
			if !isArgument(err) {
				t.Errorf("%s %q: %v", what, path, err)
			}
		}
	}
	longest := strings.Repeat("x/", (blob.MaxPath-1)/2) + "y"
	put(t, b, longest, longest)
	if got, _ := list(t, b, blob.Query{Limit: 10, Prefix: "x/"}); !slices.Equal(got, []string{longest}) {
		t.Error("the longest path is not listed")
	}
}

func apart(t *testing.T, open Open) {
	all := map[string]blob.Bucket{}
	for _, orgID := range []string{"a", "A", "a.files"} {
		for _, name := range []string{"files", "Files", "files.d"} {
			b := open(t, orgID, org.Bucket{Name: name})
			all[orgID+" "+name] = b
			put(t, b, "same", orgID+" "+name)
			put(t, b, "dir/"+orgID+name, "x")
		}
	}
	for who, b := range all {
		page, err := b.List(t.Context(), blob.Query{Limit: 10})
		got, _ := read(t, b, "same")
		if used, usageErr := b.Usage(t.Context()); err != nil || usageErr != nil || got != who || len(page.Files) != 2 || used != (blob.Usage{Bytes: int64(len(who)) + 1, Files: 2}) {
			t.Errorf("%s reads %q, lists %+v, %+v, %v", who, got, page.Files, used, errors.Join(err, usageErr))
		}
	}
}

func isLimit(err error) bool {
	var limit *blob.LimitError
	return errors.As(err, &limit)
}

// counted reads from a body, and says whether it was read.
type counted struct {
	*bytes.Reader
	read bool
}

func (c *counted) Read(p []byte) (int, error) {
	c.read = true
	return c.Reader.Read(p)
}

func quotas(t *testing.T, open Open) {
	b := open(t, "a", org.Bucket{Name: "small", Quota: 100, MaxFile: 60})
	refuse := func(path string, size int) {
		t.Helper()
		body := &counted{Reader: bytes.NewReader(make([]byte, size))}
		if _, err := b.Put(t.Context(), path, body); !isLimit(err) || body.read {
			t.Errorf("%d bytes for %s: %v; the body was read: %v", size, path, err, body.read)
		}
	}
	refuse("one", 61)
	put(t, b, "one", strings.Repeat("x", 60))
	refuse("two", 41)
	put(t, b, "two", strings.Repeat("x", 40))
	refuse("three", 1)
	put(t, b, "three", "")
	if err := b.Delete(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	put(t, b, "one", strings.Repeat("y", 30))
	put(t, b, "four", strings.Repeat("x", 60))
	if used, err := b.Usage(t.Context()); err != nil || used != (blob.Usage{Bytes: 90, Files: 3}) {
		t.Errorf("%+v, %v", used, err)
	}
	larger := open(t, "a", org.Bucket{Name: "small", Quota: 200})
	put(t, larger, "five", strings.Repeat("x", 100))
	if used, err := larger.Usage(t.Context()); err != nil || used != (blob.Usage{Bytes: 190, Files: 4}) {
		t.Errorf("%+v, %v", used, err)
	}
}

func missing(t *testing.T, open Open) {
	b := open(t, "a", org.Bucket{Name: "files"})
	put(t, b, "dir/file", "x")
	for _, path := range []string{"dir", "dir/file/x", "other", "dir/other", "DIR/file"} {
		_, stat := b.Stat(t.Context(), path)
		_, _, opened := b.Open(t.Context(), path)
		for what, err := range map[string]error{"stat": stat, "open": opened, "delete": b.Delete(t.Context(), path)} {
			if !errors.Is(err, blob.ErrNotFound) {
				t.Errorf("%s %s: %v", what, path, err)
			}
		}
	}
	if err := b.Delete(t.Context(), "dir/file"); err != nil {
		t.Error(err)
	}
	if err := b.Delete(t.Context(), "dir/file"); !errors.Is(err, blob.ErrNotFound) {
		t.Error(err)
	}
	put(t, b, "dir", "a file in place of a directory")
	put(t, b, "dir/again", "x")
}

func ended(t *testing.T, open Open) {
	b := open(t, "a", org.Bucket{Name: "files"})
	put(t, b, "x", "old")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Put(ctx, "x", strings.NewReader("new")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := b.List(ctx, blob.Query{Limit: 1}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if got, _ := read(t, b, "x"); got != "old" {
		t.Errorf("%q", got)
	}
	if used, err := b.Usage(t.Context()); err != nil || used != (blob.Usage{Bytes: 3, Files: 1}) {
		t.Errorf("%+v, %v", used, err)
	}
}

func concurrent(t *testing.T, open Open) {
	b := open(t, "a", org.Bucket{Name: "files", Quota: 1 << 20})
	done := make(chan error)
	const writers, rounds = 8, 5
	for w := range writers {
		go func() {
			var all error
			for i := range rounds {
				own, shared := fmt.Sprintf("dir%d/own%d", w%3, w), strings.Repeat(string(rune('a'+w)), 1000+w)
				_, err := b.Put(t.Context(), own, strings.NewReader(shared))
				_, second := b.Put(t.Context(), "dir/shared", strings.NewReader(shared))
				all = errors.Join(all, err, second)
				if i%2 == 0 {
					all = errors.Join(all, b.Delete(t.Context(), own))
				}
			}
			done <- all
		}()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	text, _ := read(t, b, "dir/shared")
	if strings.Trim(text, text[:1]) != "" || len(text) != 1000+int(text[0]-'a') {
		t.Errorf("a mixture: %q", text)
	}
	if used, err := b.Usage(t.Context()); err != nil || used != (blob.Usage{Bytes: int64(len(text)), Files: 1}) {
		t.Errorf("%+v, %v", used, err)
	}
}
