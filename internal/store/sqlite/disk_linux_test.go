package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// disk sees every fsync that SQLite asks for. It remembers what the files held
// at that time: all that is left after a power failure.
//
// SQLite has one table of functions for its files in a process, so there is one
// disk for all tests; each test asks for its own paths.
var disk = &syncedFiles{methods: map[uintptr]uintptr{}, files: map[uintptr]string{}, kept: map[string][]byte{}, watched: map[string]bool{}, syncs: map[string]int{}}

type syncedFiles struct {
	open    func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	sync    func(tls *libc.TLS, file uintptr, flags int32) int32
	methods map[uintptr]uintptr // those of SQLite by their address: those with our sync

	mu      sync.Mutex
	files   map[uintptr]string // open files
	watched map[string]bool
	kept    map[string][]byte // by path: what the file held at its last fsync
	syncs   map[string]int    // by path
}

func init() { //nolint:gochecknoinits // before SQLite opens its first file
	db, err := connect(":memory:", nil) // the driver prepares SQLite first
	if err != nil || db.PingContext(context.Background()) != nil || db.Close() != nil {
		panic("SQLite cannot be prepared")
	}
	tls := libc.NewTLS()
	defer tls.Close()
	vfs := at[sqlite3.Tsqlite3_vfs](sqlite3.Xsqlite3_vfs_find(tls, 0))
	open := vfs.FxOpen
	disk.open = *(*func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32)(unsafe.Pointer(&struct{ uintptr }{open}))
	hookOpen, hookSync = disk.opened, disk.synced
	vfs.FxOpen = *(*uintptr)(unsafe.Pointer(&hookOpen))
}

// What SQLite calls instead of its own functions. It keeps their addresses where
// the garbage collector does not look, so they are kept here.
var (
	hookOpen func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	hookSync func(*libc.TLS, uintptr, int32) int32
)

// at returns what is at an address of SQLite's memory, which does not move.
func at[T any](address uintptr) *T { return *(**T)(unsafe.Pointer(&address)) }

func (d *syncedFiles) opened(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	status := d.open(tls, vfs, name, file, flags, out)
	f := at[sqlite3.Tsqlite3_file](file)
	if status != sqlite3.SQLITE_OK || name == 0 || f.FpMethods == 0 {
		return status
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[file] = libc.GoString(name)
	ours := d.methods[f.FpMethods]
	if ours == 0 {
		methods := *at[sqlite3.Tsqlite3_io_methods](f.FpMethods)
		d.sync = *(*func(*libc.TLS, uintptr, int32) int32)(unsafe.Pointer(&struct{ uintptr }{methods.FxSync}))
		methods.FxSync = *(*uintptr)(unsafe.Pointer(&hookSync))
		ours = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods))) // not Go's memory: SQLite computes addresses in it
		*at[sqlite3.Tsqlite3_io_methods](ours) = methods
		d.methods[f.FpMethods] = ours
	}
	f.FpMethods = ours
	return status
}

func (d *syncedFiles) synced(tls *libc.TLS, file uintptr, flags int32) int32 {
	status := d.sync(tls, file, flags)
	d.mu.Lock()
	defer d.mu.Unlock()
	path := d.files[file]
	d.syncs[path]++
	if d.watched[filepath.Dir(path)] {
		d.kept[path], _ = os.ReadFile(path)
	}
	return status
}

// of returns how often the write-ahead log of the store in the file was synced.
func (d *syncedFiles) of(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs[path+"-wal"]
}

// watch remembers from now on what is on the disk of a directory.
func (d *syncedFiles) watch(t *testing.T, dir string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watched[dir] = true
	t.Cleanup(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watched, dir)
	})
}

// cutPower returns a directory with the store as the disk would hold it after a
// power failure at this moment.
func (d *syncedFiles) cutPower(t *testing.T, path string) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	after := filepath.Join(t.TempDir(), filepath.Base(path))
	for _, suffix := range []string{"", "-wal"} {
		if data, ok := d.kept[path+suffix]; ok {
			if err := os.WriteFile(after+suffix, data, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if _, err := os.Stat(path + suffix); suffix == "" && errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return after
}
