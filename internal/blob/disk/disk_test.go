package disk

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/blobtest"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func newStore(t *testing.T, path string, most blob.Limits) *Store {
	t.Helper()
	s, err := New(path, Options{Limits: func() blob.Limits { return most }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// E20
func TestSuite(t *testing.T) {
	blobtest.Run(t, func() blobtest.Open {
		stores := map[*testing.T]*Store{}
		return func(t *testing.T, orgID string, settings org.Bucket) blob.Bucket {
			if stores[t] == nil {
				stores[t] = newStore(t, t.TempDir(), blob.Limits{})
			}
			return stores[t].Bucket(Space{Org: orgID}, settings)
		}
	}())
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A restart counts what is there and removes what was not finished.
func TestARestartCounts(t *testing.T) {
	dir := t.TempDir()
	of := Space{"Acme", time.UnixMilli(1234)}
	b := newStore(t, dir, blob.Limits{}).Bucket(of, org.Bucket{Name: "Files"})
	must(b.Put(t.Context(), "a/b", strings.NewReader("hello")))
	must(b.Put(t.Context(), "c", strings.NewReader("")))
	left := filepath.Join(dir, "^acme@1234", "tmp", "left")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, dir, blob.Limits{Files: 3})
	b = s.Bucket(of, org.Bucket{Name: "Files"})
	if used := must(b.Usage(t.Context())); used != (blob.Usage{Bytes: 5, Files: 2}) || must(s.Used(of)) != used {
		t.Errorf("%+v", used)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Error("an unfinished file is still there")
	}
	other := s.Bucket(of, org.Bucket{Name: "other"})
	must(other.Put(t.Context(), "x", strings.NewReader("x")))
	if _, err := other.Put(t.Context(), "y", strings.NewReader("x")); err == nil || !strings.Contains(err.Error(), "org_caps.files") {
		t.Error(err)
	}
}

// The limit of an org is one over all its buckets. That of its bytes names the key, too.
func TestTheLimitOfAnOrgIsOverAllBuckets(t *testing.T) {
	s := newStore(t, t.TempDir(), blob.Limits{Bytes: 10})
	one, two := s.Bucket(Space{Org: "a"}, org.Bucket{Name: "one"}), s.Bucket(Space{Org: "a"}, org.Bucket{Name: "two"})
	must(one.Put(t.Context(), "x", strings.NewReader("123456")))
	var limit *blob.LimitError
	if _, err := two.Put(t.Context(), "x", strings.NewReader("12345")); !errors.As(err, &limit) || limit.Setting != "org_caps.files_mib" {
		t.Error(err)
	}
	if used := must(two.Usage(t.Context())); used != (blob.Usage{}) {
		t.Errorf("a refused file counts: %+v", used)
	}
	must(s.Bucket(Space{Org: "b"}, org.Bucket{Name: "two"}).Put(t.Context(), "x", strings.NewReader("12345")))
	must(two.Put(t.Context(), "x", strings.NewReader("1234")))
}

// A link that somebody has put into the directory leads nowhere, and is not listed.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	b := newStore(t, dir, blob.Limits{}).Bucket(Space{Org: "a"}, org.Bucket{Name: "files"})
	must(b.Put(t.Context(), "x", strings.NewReader("x")))
	secret := filepath.Join(t.TempDir(), "secret")
	if err := errors.Join(os.WriteFile(secret, []byte(header("l", strings.Repeat("0", digits))+"secret"), 0o600), os.Mkdir(secret+".d", 0o700)); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "a@0", "files.d")
	if err := errors.Join(os.Symlink(secret, filepath.Join(own, "l.f")), os.Symlink(filepath.Dir(secret), filepath.Join(own, "up.d"))); err != nil {
		t.Skip(err)
	}
	if _, _, err := b.Open(t.Context(), "l"); !errors.Is(err, blob.ErrNotFound) {
		t.Error(err)
	}
	if _, err := b.Put(t.Context(), "up/y", strings.NewReader("y")); err == nil {
		t.Error("a file was written through a link")
	}
	if page := must(b.List(t.Context(), blob.Query{Limit: 10})); len(page.Files) != 1 {
		t.Errorf("%+v", page)
	}
}

// A file that was changed behind the gateway's back is not read as if it were the one that was written.
func TestADamagedFileIsAnError(t *testing.T) {
	dir := t.TempDir()
	b := newStore(t, dir, blob.Limits{}).Bucket(Space{Org: "a"}, org.Bucket{Name: "files"})
	must(b.Put(t.Context(), "x", strings.NewReader("hello")))
	path := filepath.Join(dir, "a@0", "files.d", "x.f")
	text := must(os.ReadFile(path))
	for name, changed := range map[string]string{
		"changed": strings.Replace(string(text), "hello", "hallo", 1), "cut": string(text[:len(text)-1]), "no header": "hello", "another path": strings.Replace(string(text), " x\n", " y\n", 1),
	} {
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		content, _, err := b.Open(t.Context(), "x")
		if err == nil {
			_, err = io.ReadAll(content)
			_ = content.Close()
		}
		if !errors.Is(err, blob.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slow is a body that waits in its first read.
type slow struct {
	*strings.Reader
	first            *sync.Once
	reading, release chan struct{}
}

func (s slow) Read(p []byte) (int, error) {
	s.first.Do(func() {
		s.reading <- struct{}{}
		<-s.release
	})
	return s.Reader.Read(p)
}

// The files of a deleted org are deleted, also those that are being written, and an org that is created again with
// its id has none of them. Orgs that exist keep theirs. // E20
func TestFilesOfADeletedOrg(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, blob.Limits{})
	gone, again, other := Space{"a", time.UnixMilli(1)}, Space{"a", time.UnixMilli(2)}, Space{Org: "b"}
	for _, of := range []Space{gone, other} {
		must(s.Bucket(of, org.Bucket{Name: "files"}).Put(t.Context(), "x", strings.NewReader("x")))
	}
	body := slow{strings.NewReader("late"), new(sync.Once), make(chan struct{}), make(chan struct{})}
	late := make(chan error)
	go func() {
		_, err := s.Bucket(gone, org.Bucket{Name: "files"}).Put(t.Context(), "late", body)
		late <- err
	}()
	<-body.reading
	live := func(of Space) bool { return of == other || of == again }
	if n := must(s.Strangers(live)); n != 1 {
		t.Errorf("%d orgs do not exist", n)
	}
	if err := s.Sweep(t.Context(), live); err != nil {
		t.Fatal(err)
	}
	close(body.release)
	if err := <-late; !errors.Is(err, blob.ErrDeleted) {
		t.Errorf("a file was put into the bucket of a deleted org: %v", err)
	}
	if page := must(s.Bucket(again, org.Bucket{Name: "files"}).List(t.Context(), blob.Query{Limit: 10})); len(page.Files) != 0 {
		t.Errorf("%+v", page)
	}
	if _, err := s.Bucket(other, org.Bucket{Name: "files"}).Stat(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	entries := must(os.ReadDir(dir))
	if len(entries) != 1 || entries[0].Name() != "b@0" {
		t.Errorf("%v", entries)
	}
}

// A body that is not what it was said to be is not kept, and gives its room back.
func TestABodyThatChanges(t *testing.T) {
	s := newStore(t, t.TempDir(), blob.Limits{})
	b := s.Bucket(Space{Org: "a"}, org.Bucket{Name: "files"})
	if _, err := b.Put(t.Context(), "x", failing{strings.NewReader("hello")}); err == nil {
		t.Error("a part was kept")
	}
	if _, err := b.Stat(t.Context(), "x"); !errors.Is(err, blob.ErrNotFound) {
		t.Error(err)
	}
	if used := must(s.Used(Space{Org: "a"})); used != (blob.Usage{}) {
		t.Errorf("%+v", used)
	}
	left := must(os.ReadDir(filepath.Join(s.path, "a@0", "tmp")))
	if len(left) != 0 {
		t.Errorf("%v", left)
	}
}

// failing is a body with fewer bytes than its end says.
type failing struct{ *strings.Reader }

func (f failing) Read(p []byte) (int, error) { return f.Reader.Read(p[:min(len(p), 2)]) }

func (f failing) Seek(offset int64, whence int) (int64, error) {
	n, err := f.Reader.Seek(offset, whence)
	if whence == io.SeekEnd {
		n += 3
	}
	return n, err
}

func TestSpaces(t *testing.T) {
	for _, of := range []Space{{Org: "a"}, {"A.b_C-9", time.UnixMilli(1767225600000)}} {
		if got, ok := spaceOf(of.directory()); !ok || got.Org != of.Org || !got.CreatedAt.Equal(of.CreatedAt) {
			t.Errorf("%v is %v", of, got)
		}
	}
	for _, name := range []string{"a", "a@", "a@x", "A@0", "a@01", ".DS_Store"} {
		if got, ok := spaceOf(name); ok {
			t.Errorf("%s is %v", name, got)
		}
	}
	if err := newStore(t, t.TempDir(), blob.Limits{}).Sweep(context.Background(), nil); err != nil {
		t.Error(err)
	}
}

// A copy of the files, made while they are used, has whole files, and is checked when it is unpacked.
func TestArchives(t *testing.T) {
	dir := t.TempDir()
	of := Space{"Acme", time.UnixMilli(1234)}
	b := newStore(t, dir, blob.Limits{}).Bucket(of, org.Bucket{Name: "files"})
	long := strings.Repeat(strings.Repeat("x", blob.MaxName)+"/", 3) + "ü"
	for _, path := range []string{"a/b.txt", "c", long} {
		must(b.Put(t.Context(), path, strings.NewReader("of "+path)))
	}
	if err := os.WriteFile(filepath.Join(dir, "^acme@1234", "tmp", "half"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if n := must(Archive(t.Context(), dir, &archive)); n != 3 {
		t.Errorf("%d files", n)
	}
	again := filepath.Join(t.TempDir(), "again")
	if n := must(Extract(t.Context(), bytes.NewReader(archive.Bytes()), again)); n != 3 {
		t.Errorf("%d files", n)
	}
	copied := newStore(t, again, blob.Limits{}).Bucket(of, org.Bucket{Name: "files"})
	for _, path := range []string{"a/b.txt", "c", long} {
		content, info, err := copied.Open(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if text := must(io.ReadAll(content)); string(text) != "of "+path || info.Modified.IsZero() {
			t.Errorf("%q %+v", text, info)
		}
		_ = content.Close()
	}
	if n := must(Archive(t.Context(), filepath.Join(dir, "none"), io.Discard)); n != 0 {
		t.Errorf("%d files", n)
	}
	damaged := bytes.Replace(archive.Bytes(), []byte("of c"), []byte("of d"), 1)
	if _, err := Extract(t.Context(), bytes.NewReader(damaged), filepath.Join(t.TempDir(), "damaged")); !errors.Is(err, blob.ErrDamaged) {
		t.Error(err)
	}
}

// An archive cannot put a file elsewhere.
func TestArchivesOfOthers(t *testing.T) {
	for _, h := range []tar.Header{
		{Name: "../x"}, {Name: "/etc/passwd"}, {Name: "a@0/files.d/../../x.f"}, {Name: "a@0/tmp/x"}, {Name: "a@0/x.f"}, {Name: "A@0/files.d/x.f"}, {Name: "a@0/files.d/...f"},
		{Name: "a@0/files.d/x.f", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, {Name: "a@0/files.d/x.f", Typeflag: tar.TypeDir},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := errors.Join(w.WriteHeader(&h), w.Close()); err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "to")
		if n, err := Extract(t.Context(), &archive, to); err == nil || n != 0 {
			t.Errorf("%s was accepted", h.Name)
		}
		if left := must(os.ReadDir(to)); len(left) != 0 {
			t.Errorf("%s left %v", h.Name, left)
		}
	}
}
