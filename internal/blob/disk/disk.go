// Package disk keeps the files of buckets in a directory: that of the gateway's data.
//
//	blobs/                      the Store
//	  acme@1767225600000/       an org: its id, and when it was created
//	    tmp/                    files that are being written
//	    reports.d/              a bucket
//	      2026.d/               a name with others below it
//	        january.txt.f       a file: one line with its digest and its path, then the content
//
// The names of an org and of a bucket come from settings, never from a request. All other names are parts of paths
// that [blob.CheckPath] has accepted. Everything below an org is opened through an [os.Root], which no link leads out of.
//
// A file is written under another name, synced, and renamed. One process uses the directory: it counts in memory
// what each org has there.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const (
	orgMode   = 0o700 // of directories
	fileMode  = 0o600
	temporary = "tmp"
	dirEnd    = ".d"
	fileEnd   = ".f"
)

// Space is the name space of an org. An org that is created again has another one.
type Space struct {
	Org       string
	CreatedAt time.Time
}

// directory returns the name of the directory of an org. Two orgs have different names also where the file system
// does not distinguish upper case.
func (s Space) directory() string {
	return lower(s.Org) + "@" + strconv.FormatInt(blob.Millis(s.CreatedAt), 10)
}

// Is reports whether both are the name space of the same org.
func (s Space) Is(other Space) bool { return s.directory() == other.directory() }

// lower writes a name without upper case: ^a for A. The names of orgs and buckets have no ^.
func lower(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if 'A' <= c && c <= 'Z' {
			b.WriteByte('^')
			c += 'a' - 'A'
		}
		b.WriteByte(c)
	}
	return b.String()
}

// Options configure a Store. All are required.
type Options struct {
	// Limits returns what the files of one org may have together, in all its buckets.
	Limits func() blob.Limits
	Log    *slog.Logger
}

// Store keeps the files of all orgs. It is safe for concurrent use.
type Store struct {
	path string
	o    Options

	mu   sync.Mutex
	orgs map[string]*files // by the name of the directory
}

// files are those of one org.
type files struct {
	path  string     // of the directory
	meter blob.Meter // of all buckets

	mu      sync.Mutex // held while the directory changes
	loaded  bool
	gone    bool
	buckets map[string]*blob.Meter // by name of the directory
}

// New returns a Store in a directory, which is made if it does not exist. Only one Store may use it.
func New(path string, o Options) (*Store, error) {
	if err := os.MkdirAll(path, orgMode); err != nil {
		return nil, fmt.Errorf("directory for the files of buckets: %w", err)
	}
	return &Store{path: path, o: o, orgs: map[string]*files{}}, nil
}

// Bucket returns a bucket of an org. Its directory is made when a file is put into it.
func (s *Store) Bucket(of Space, b org.Bucket) *Bucket {
	return &Bucket{store: s, space: of, settings: b, directory: lower(b.Name) + dirEnd}
}

// files returns those of an org, counted.
func (s *Store) files(of Space) (*files, error) {
	name := of.directory()
	s.mu.Lock()
	f := s.orgs[name]
	if f == nil {
		f = &files{path: filepath.Join(s.path, name), buckets: map[string]*blob.Meter{}}
		s.orgs[name] = f
	}
	s.mu.Unlock()
	err := f.load()
	return f, err
}

// load counts what is in the directory, once, and removes what a crash has left unfinished.
func (f *files) load() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded {
		return nil
	}
	root, err := os.OpenRoot(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		f.loaded = true
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.RemoveAll(temporary); err != nil {
		return err
	}
	var all blob.Usage
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		path, isFile := pathOf(name)
		if err != nil || !isFile || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		bucket, path, _ := strings.Cut(path, "/")
		size := contentSize(path, info.Size())
		f.bucket(bucket+dirEnd).Reserve(blob.Usage{Bytes: size, Files: 1}, blob.Limits{})
		all.Bytes += size
		all.Files++
		return nil
	})
	if err != nil {
		clear(f.buckets)
		return fmt.Errorf("count the files of an org: %w", err)
	}
	f.meter.Set(all)
	f.loaded = true
	return nil
}

// bucket returns the meter of a bucket. It is called with mu held.
func (f *files) bucket(directory string) *blob.Meter {
	m := f.buckets[directory]
	if m == nil {
		m = &blob.Meter{}
		f.buckets[directory] = m
	}
	return m
}

// root opens the directory of the org; fs.ErrNotExist if there is none.
func (f *files) root() (*os.Root, error) { return os.OpenRoot(f.path) }

// Used returns what an org has in all its buckets, also in those that are not configured any more.
func (s *Store) Used(of Space) (blob.Usage, error) {
	f, err := s.files(of)
	return f.meter.Used(), err
}

// Sweep deletes the files of orgs that do not exist. Live is asked right before each deletion.
func (s *Store) Sweep(ctx context.Context, live func(Space) bool) error {
	all, err := s.strangers(live)
	for _, of := range all {
		if ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if live(of) {
			continue
		}
		err = errors.Join(err, s.remove(of))
	}
	return err
}

// Strangers returns how many orgs have files and do not exist.
func (s *Store) Strangers(live func(Space) bool) (int, error) {
	all, err := s.strangers(live)
	return len(all), err
}

func (s *Store) strangers(live func(Space) bool) (out []Space, err error) {
	entries, err := os.ReadDir(s.path)
	for _, e := range entries {
		if of, ok := spaceOf(e.Name()); ok && !live(of) {
			out = append(out, of)
		}
	}
	return out, err
}

// remove deletes the files of an org. A file that is being put there is not put.
func (s *Store) remove(of Space) error {
	name := of.directory()
	s.mu.Lock()
	f := s.orgs[name]
	delete(s.orgs, name)
	s.mu.Unlock()
	if f != nil {
		f.mu.Lock()
		f.gone = true
		f.mu.Unlock()
	}
	if err := os.RemoveAll(filepath.Join(s.path, name)); err != nil {
		return fmt.Errorf("delete the files of the org %s: %w", of.Org, err)
	}
	s.o.Log.Info("the files of a deleted org were deleted", "org", of.Org)
	return nil
}

// spaceOf is the reverse of directory.
func spaceOf(name string) (Space, bool) {
	id, at, ok := strings.Cut(name, "@")
	ms, err := strconv.ParseInt(at, 10, 64)
	if !ok || err != nil {
		return Space{}, false
	}
	s := Space{Org: raised(id)}
	if ms != 0 {
		s.CreatedAt = time.UnixMilli(ms)
	}
	return s, s.directory() == name
}

// raised is the reverse of lower.
func raised(name string) string {
	var b strings.Builder
	upper := false
	for _, c := range []byte(name) {
		if c == '^' {
			upper = true
			continue
		}
		if upper {
			c -= 'a' - 'A'
		}
		upper = false
		b.WriteByte(c)
	}
	return b.String()
}
