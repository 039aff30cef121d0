package disk_test

import (
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func TestFilesOfADirectoryAreWrittenToAnother(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	options := disk.Options{Limits: func() blob.Limits { return blob.Limits{} }, Log: slog.New(slog.DiscardHandler)}
	store, err := disk.New(from, options)
	if err != nil {
		t.Fatal(err)
	}
	space, bucket := disk.Space{Org: "AcmE", CreatedAt: time.UnixMilli(7)}, org.Bucket{Name: "Reports"}
	for _, path := range []string{"a", "B/c.txt", "empty"} {
		content := strings.TrimPrefix("content of "+path, "content of empty")
		if _, err := store.Bucket(space, bucket).Put(t.Context(), path, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // a file is replaced
		err := disk.Walk(t.Context(), from, func(e disk.Entry, content io.Reader) error { return disk.Write(t.Context(), to, e, content) })
		if err = errors.Join(err, disk.SyncNames(to)); err != nil {
			t.Fatal(err)
		}
	}
	list := func(dir string) (all []disk.Entry) {
		err := disk.Walk(t.Context(), dir, func(e disk.Entry, content io.Reader) error {
			e.Modified = e.Modified.Truncate(time.Millisecond)
			all = append(all, e)
			_, err := io.Copy(io.Discard, content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if was, is := list(from), list(to); len(was) != 3 || was[0].Space != space || was[0].Bucket != "Reports" || !slices.Equal(was, is) {
		t.Errorf("%+v\nwritten as\n%+v", was, is)
	}
	copied, err := disk.New(to, options)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := copied.Bucket(space, bucket).Stat(t.Context(), "B/c.txt"); err != nil || info.Size != 18 {
		t.Errorf("%+v, %v", info, err)
	}
	e := list(from)[0]
	if err := disk.Write(t.Context(), to, e, strings.NewReader("another")); !errors.Is(err, blob.ErrDamaged) {
		t.Errorf("another content: %v", err)
	}
	if err := disk.Walk(t.Context(), to+"/none", nil); err != nil {
		t.Errorf("no directory: %v", err)
	}
}
