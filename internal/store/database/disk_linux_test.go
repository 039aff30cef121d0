package database

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

// disk intercepts every fsync of SQLite and keeps the content of the files at that
// time, which is what a power failure leaves.
//
// SQLite has one table of file functions per process, so all tests share one disk, and
// each test reads only its own paths.
var disk = &syncedFiles{methods: map[uintptr]uintptr{}, files: map[uintptr]string{}, kept: map[string][]byte{}, watched: map[string]bool{}, syncs: map[string]int{}}

type syncedFiles struct {
	open    func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	sync    func(tls *libc.TLS, file uintptr, flags int32) int32
	methods map[uintptr]uintptr // SQLite's method tables by address, with the copies that call synced

	mu      sync.Mutex
	files   map[uintptr]string // checkOpening files
	watched map[string]bool
	kept    map[string][]byte // content at the last fsync, by path
	syncs   map[string]int    // by path
}

func init() { //nolint:gochecknoinits // must run before SQLite opens its first file
	db, err := connect(":memory:", nil) // makes the driver initialise SQLite
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

// The functions that SQLite calls instead of its own. SQLite stores their addresses in
// memory that the garbage collector does not scan, so these variables keep them alive.
var (
	hookOpen func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	hookSync func(*libc.TLS, uintptr, int32) int32
)

// at returns a pointer to an address in SQLite's memory, which does not move.
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
		ours = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(methods))) // not in Go's memory, because SQLite does pointer arithmetic on it
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

// of returns how often the write-ahead log of a store was synced.
func (d *syncedFiles) of(path string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncs[path+"-wal"]
}

// watch starts to keep the synced content of the files in a directory.
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

// cutPower returns a directory with the store's files as a power failure would leave
// them now.
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
