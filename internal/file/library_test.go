package file_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/database/sqlitetest"
)

// shelf is a Library of the org a, with its clock.
type shelf struct {
	*testing.T
	*file.Library
	now     time.Time
	content blob.Bucket
	breakable
}

// breakable is a store that can fail.
type breakable struct {
	*database.Store
	broken *error // what AddFile returns; nil = it works
}

// AddFile fails while the store is broken.
func (b breakable) AddFile(ctx context.Context, f file.File) error {
	if *b.broken != nil {
		return *b.broken
	}
	return b.Store.AddFile(ctx, f)
}

func newShelf(t *testing.T, limits blob.Limits) *shelf {
	store := breakable{sqlitetest.Open(t, database.Options{}), new(error)}
	s := &shelf{T: t, now: time.Now().Add(time.Second).UTC().Truncate(time.Millisecond), breakable: store}
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	d, err := disk.New(filepath.Join(t.TempDir(), "blobs"), disk.Options{Limits: func() blob.Limits { return limits }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s.content = d.Bucket(disk.Space{Org: "a"}, org.Bucket{Name: "_files"})
	s.Library = file.New(file.Options{Store: s.breakable, Content: func(_ context.Context, orgID string) (blob.Bucket, error) {
		if orgID != "a" {
			return nil, blob.ErrDeleted
		}
		return s.content, nil
	}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return s.now }})
	return s
}

func (s *shelf) add(name, text string, expires time.Duration) file.File {
	s.Helper()
	f := file.File{Org: "a", Principal: "k", Name: name, Purpose: file.UserData, CreatedAt: s.now}
	if expires > 0 {
		f.ExpiresAt = s.now.Add(expires)
	}
	f, err := s.Add(s.Context(), f, strings.NewReader(text))
	if err != nil {
		s.Fatal(err)
	}
	return f
}

// read returns the content of a file of the key k.
func (s *shelf) read(id string) (string, error) {
	content, _, err := s.Open(s.Context(), "a", "k", id)
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(content)
	return string(text), errors.Join(err, content.Close())
}

// stored fails the test unless content of these files is on disk.
func (s *shelf) stored(want ...string) {
	s.Helper()
	page, err := s.content.List(s.Context(), blob.Query{Limit: 100})
	if err != nil {
		s.Fatal(err)
	}
	got := []string{}
	for _, f := range page.Files {
		got = append(got, f.Path)
	}
	slices.Sort(want)
	if !slices.Equal(got, append([]string{}, want...)) {
		s.Errorf("on disk are %v, want %v", got, want)
	}
}

func (s *shelf) sweep() {
	s.Helper()
	if err := s.Sweep(s.Context(), []string{"a", "deleted"}); err != nil {
		s.Error(err)
	}
}

// A file is kept as it was added, for its key only, until it is deleted. // J17
func TestAFileIsKept(t *testing.T) {
	s := newShelf(t, blob.Limits{})
	f := s.add("a.txt", "hello", 0)
	if f.Bytes != 5 || f.SHA256 != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" || !f.CreatedAt.Equal(s.now) || !strings.HasPrefix(f.ID, file.Prefix) {
		t.Errorf("%+v", f)
	}
	if text, err := s.read(f.ID); text != "hello" || err != nil {
		t.Error(text, err)
	}
	if _, _, err := s.Open(t.Context(), "a", "other", f.ID); !errors.Is(err, file.ErrNotFound) {
		t.Error("for another key:", err)
	}
	if err := s.Delete(t.Context(), "a", "other", f.ID); !errors.Is(err, file.ErrNotFound) {
		t.Error("for another key:", err)
	}
	s.stored(f.ID)
	if err := s.Delete(t.Context(), "a", "k", f.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.read(f.ID); !errors.Is(err, file.ErrNotFound) {
		t.Error(err)
	}
	s.stored()
}

// A file that has expired says so at once, its content is deleted, and after a week it does not exist. // J18
func TestFilesExpire(t *testing.T) {
	s := newShelf(t, blob.Limits{})
	short, long := s.add("short", "1", time.Hour), s.add("long", "2", 0)
	s.now = short.ExpiresAt.Add(-time.Millisecond)
	if _, err := s.read(short.ID); err != nil {
		t.Error(err)
	}
	s.now = short.ExpiresAt
	if _, err := s.read(short.ID); !errors.Is(err, file.ErrExpired) {
		t.Error(err)
	}
	s.stored(short.ID, long.ID)
	s.sweep()
	s.stored(long.ID)
	if _, err := s.read(short.ID); !errors.Is(err, file.ErrExpired) {
		t.Error(err)
	}
	s.now = short.ExpiresAt.Add(file.KeptExpired)
	s.sweep()
	if _, err := s.read(short.ID); !errors.Is(err, file.ErrExpired) {
		t.Error(err)
	}
	s.now = s.now.Add(time.Millisecond)
	s.sweep()
	if _, err := s.read(short.ID); !errors.Is(err, file.ErrNotFound) {
		t.Error(err)
	}
	if text, err := s.read(long.ID); text != "2" || err != nil {
		t.Error(text, err)
	}
}

// Content that a crash left without a file is deleted, and that of an upload in progress is not.
func TestContentOfNoFileIsDeleted(t *testing.T) {
	s := newShelf(t, blob.Limits{})
	known := s.add("known", "1", 0)
	if _, err := s.content.Put(t.Context(), "file-stray", strings.NewReader("2")); err != nil {
		t.Fatal(err)
	}
	s.sweep()
	s.stored(known.ID, "file-stray")
	s.now = s.now.Add(2 * time.Hour)
	s.sweep()
	s.stored(known.ID)
}

func TestAFileThatIsNotStoredLeavesNothing(t *testing.T) {
	s := newShelf(t, blob.Limits{Bytes: 10})
	*s.broken = errors.New("the store is broken")
	if _, err := s.Add(t.Context(), file.File{Org: "a"}, strings.NewReader("12345678")); !errors.Is(err, *s.broken) {
		t.Error(err)
	}
	s.stored()
	*s.broken = nil
	var limit *blob.LimitError
	if _, err := s.Add(t.Context(), file.File{Org: "a"}, strings.NewReader("12345678901")); !errors.As(err, &limit) || limit.Setting != "org_caps.files_mib" {
		t.Error(err)
	}
	f := s.add("fits", "1234567890", 0) // what was refused is not counted
	s.stored(f.ID)
}

// A file whose content is missing is damaged, not unknown.
func TestMissingContentIsDamage(t *testing.T) {
	s := newShelf(t, blob.Limits{})
	f := s.add("a", "1", 0)
	if err := s.content.Delete(t.Context(), f.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(f.ID); !errors.Is(err, blob.ErrDamaged) || errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A file that code has made has 30 minutes from when it was read, or its container was used, last. An upload keeps its own time.
// J18
func TestATouchGivesOutputsMoreTime(t *testing.T) {
	s := newShelf(t, blob.Limits{})
	output := func() file.File {
		f, err := s.Add(t.Context(), file.File{Org: "a", Principal: "k", Name: "x", Purpose: file.Output, Container: "c", CreatedAt: s.now, ExpiresAt: s.now.Add(file.OutputTTL)}, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	read, used, upload := output(), output(), s.add("u", "u", file.OutputTTL)
	for range 4 {
		s.now = s.now.Add(20 * time.Minute)
		if _, err := s.read(read.ID); err != nil {
			t.Fatal(err)
		}
		if f, err := s.Find(t.Context(), "a", "k", read.ID); err != nil || !f.ExpiresAt.Equal(s.now.Add(file.OutputTTL)) {
			t.Errorf("%v, %v", f.ExpiresAt, err)
		}
	}
	for id, name := range map[string]string{used.ID: "not used", upload.ID: "an upload"} {
		if _, err := s.read(id); !errors.Is(err, file.ErrExpired) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Touch(t.Context(), "a", "c", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.read(used.ID); !errors.Is(err, file.ErrExpired) {
		t.Errorf("a file whose time was over is back: %v", err)
	}
	s.now = s.now.Add(20 * time.Minute)
	if err := s.Touch(t.Context(), "a", "c", ""); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(29 * time.Minute)
	if _, err := s.read(read.ID); err != nil {
		t.Errorf("after its container was used: %v", err)
	}
}
