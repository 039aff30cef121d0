package disk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Bucket is a bucket of an org. It implements [blob.Bucket].
type Bucket struct {
	store     *Store
	space     Space
	settings  org.Bucket
	directory string // in that of the org
}

var _ blob.Bucket = (*Bucket)(nil)

// name returns the name of a file in the directory of the org.
func (b *Bucket) name(path string) string {
	return b.directory + "/" + strings.ReplaceAll(path, "/", dirEnd+"/") + fileEnd
}

// pathOf returns the path of a file with the name of its bucket before it; false for other names.
func pathOf(name string) (string, bool) {
	name, ok := strings.CutSuffix(name, fileEnd)
	parts := strings.Split(name, "/")
	if !ok || len(parts) < 2 {
		return "", false
	}
	for i, part := range parts[:len(parts)-1] {
		if parts[i], ok = strings.CutSuffix(part, dirEnd); !ok {
			return "", false
		}
	}
	return strings.Join(parts, "/"), true
}

// The line at the beginning of a file is mark, the digest, a space, the path and a line feed.
const (
	mark   = "turnpike-blob/1 sha256:"
	digits = 2 * sha256.Size
)

func header(path, digest string) string { return mark + digest + " " + path + "\n" }

func headerSize(path string) int64 { return int64(len(mark) + digits + len(" \n") + len(path)) }

// contentSize returns the size of the content of a file; 0 if the file is too short to be one.
func contentSize(path string, size int64) int64 { return max(0, size-headerSize(path)) }

// readHeader returns the digest of the file with the path that is open at its beginning.
func readHeader(f io.Reader, path string) (string, error) {
	text := make([]byte, headerSize(path))
	if _, err := io.ReadFull(f, text); err != nil {
		return "", blob.ErrDamaged
	}
	digest, ok := strings.CutPrefix(string(text), mark)
	if !ok || len(digest) < digits {
		return "", blob.ErrDamaged
	}
	digest = digest[:digits]
	if string(text) != header(path, digest) {
		return "", fmt.Errorf("%w: it is that of another path", blob.ErrDamaged)
	}
	return digest, nil
}

// open opens a file and reads its header.
func (b *Bucket) open(p string) (*os.File, blob.Info, error) {
	if err := blob.CheckPath(p); err != nil {
		return nil, blob.Info{}, err
	}
	f, err := b.store.files(b.space)
	if err != nil {
		return nil, blob.Info{}, err
	}
	root, err := f.root()
	if err != nil {
		return nil, blob.Info{}, notFound(err)
	}
	defer root.Close()
	info, err := root.Lstat(b.name(p))
	if err != nil {
		return nil, blob.Info{}, notFound(err)
	}
	if !info.Mode().IsRegular() {
		return nil, blob.Info{}, blob.ErrNotFound
	}
	file, err := root.Open(b.name(p))
	if err != nil {
		return nil, blob.Info{}, notFound(err)
	}
	if info, err = file.Stat(); err == nil {
		var digest string
		if digest, err = readHeader(file, p); err == nil {
			return file, blob.Info{Path: p, Size: contentSize(p, info.Size()), Modified: info.ModTime(), SHA256: digest}, nil
		}
	}
	return nil, blob.Info{}, errors.Join(err, file.Close())
}

// notFound returns blob.ErrNotFound for the error of a name that does not exist.
func notFound(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return blob.ErrNotFound
	}
	return err
}

// Stat implements [blob.Bucket].
func (b *Bucket) Stat(_ context.Context, path string) (blob.Info, error) {
	file, info, err := b.open(path)
	if err != nil {
		return blob.Info{}, err
	}
	return info, file.Close()
}

// Open implements [blob.Bucket].
func (b *Bucket) Open(_ context.Context, path string) (io.ReadCloser, blob.Info, error) {
	file, info, err := b.open(path)
	if err != nil {
		return nil, blob.Info{}, err
	}
	return newContent(file, info.SHA256), info, nil
}

// content reads the content of a file and compares its digest at the end.
type content struct {
	file   *os.File
	sum    hash.Hash
	digest string
}

func newContent(file *os.File, digest string) *content { return &content{file, sha256.New(), digest} }

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	n, err := c.file.Read(p)
	c.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(c.sum.Sum(nil)) != c.digest {
		return n, blob.ErrDamaged
	}
	return n, err
}

// Close implements io.Closer.
func (c *content) Close() error { return c.file.Close() }

// Put implements [blob.Bucket].
func (b *Bucket) Put(ctx context.Context, path string, body io.ReadSeeker) (blob.Info, error) {
	if err := blob.CheckPath(path); err != nil {
		return blob.Info{}, err
	}
	size, err := blob.Size(body)
	if err != nil {
		return blob.Info{}, err
	}
	if err := blob.CheckSize(size, b.settings.LargestFile()); err != nil {
		return blob.Info{}, err
	}
	f, err := b.store.files(b.space)
	if err != nil {
		return blob.Info{}, err
	}
	counted, release, err := b.reserve(f, size)
	if err != nil {
		return blob.Info{}, err
	}
	info, err := b.write(ctx, f, path, body, size, counted)
	if err != nil && info.Path == "" {
		release(blob.Usage{Bytes: size, Files: 1})
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = &blob.RefusedError{Why: "the gateway's disk is full; nothing was written", Err: err}
	}
	return info, err
}

// reserve counts a new file, in its bucket and in its org. The second function takes back what was counted.
func (b *Bucket) reserve(f *files, size int64) (*blob.Meter, func(blob.Usage), error) {
	f.mu.Lock()
	own := f.bucket(b.directory)
	f.mu.Unlock()
	more := blob.Usage{Bytes: size, Files: 1}
	if !own.Reserve(more, blob.Limits{Bytes: b.settings.Quota}) {
		return nil, nil, blob.QuotaError(b.settings.Quota)
	}
	if most := b.store.o.Limits(); !f.meter.Reserve(more, most) {
		own.Release(more)
		return nil, nil, orgError(f.meter.Used(), more, most)
	}
	return own, func(less blob.Usage) {
		own.Release(less)
		f.meter.Release(less)
	}, nil
}

// orgError returns the error for a file that does not fit into what an org may have.
func orgError(used, more blob.Usage, most blob.Limits) error {
	if most.Files > 0 && used.Files+more.Files > most.Files {
		return &blob.LimitError{What: fmt.Sprintf("the org may have %d files on the gateway's disk; delete some, or ask the operator to raise the limit", most.Files), Setting: "org_caps.files"}
	}
	return &blob.LimitError{What: fmt.Sprintf("the files of the org may have %d MiB together on the gateway's disk; delete some, or ask the operator to raise the limit", most.Bytes>>20), Setting: "org_caps.files_mib"}
}

// write writes a file that is counted. An error with an Info means that the file is there and may not survive a crash.
func (b *Bucket) write(ctx context.Context, f *files, path string, body io.Reader, size int64, own *blob.Meter) (blob.Info, error) {
	root, file, name, err := f.create()
	if err != nil {
		return blob.Info{}, err
	}
	defer root.Close()
	digest, err := fill(ctx, file, path, body, size)
	info, statErr := file.Stat()
	if err = errors.Join(err, statErr, file.Close()); err == nil {
		var there bool
		there, err = b.install(f, root, name, path, own)
		if there {
			return blob.Info{Path: path, Size: size, Modified: info.ModTime(), SHA256: digest}, err
		}
	}
	return blob.Info{}, errors.Join(err, ignoreNotExist(root.Remove(name)))
}

// create creates a file for writing. The directory of the org is made if it does not exist.
func (f *files) create() (*os.Root, *os.File, string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return nil, nil, "", blob.ErrDeleted
	}
	if err := os.Mkdir(f.path, orgMode); err == nil {
		if err := syncPath(path.Dir(f.path)); err != nil {
			return nil, nil, "", err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return nil, nil, "", err
	}
	root, err := f.root()
	if err != nil {
		return nil, nil, "", err
	}
	err = root.Mkdir(temporary, orgMode)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	name := temporary + "/" + id.New("")
	var file *os.File
	if err == nil {
		file, err = root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	}
	if err != nil {
		return nil, nil, "", errors.Join(err, root.Close())
	}
	return root, file, name, nil
}

// fill writes the header and the content, and syncs them.
func fill(ctx context.Context, file *os.File, path string, body io.Reader, size int64) (digest string, err error) {
	if _, err := file.WriteString(header(path, strings.Repeat("0", digits))); err != nil {
		return "", err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum), interruptible{ctx, io.LimitReader(body, size+1)})
	switch {
	case err != nil:
		return "", err
	case n != size:
		return "", fmt.Errorf("the body has %d bytes after it was said to have %d", n, size)
	}
	digest = hex.EncodeToString(sum.Sum(nil))
	if _, err := file.WriteAt([]byte(digest), int64(len(mark))); err != nil {
		return "", err
	}
	return digest, file.Sync()
}

// interruptible ends with the error of ctx when that is done.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (i interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}

// install gives a written file its name, and reports whether it has it. What it replaces is not counted any more.
func (b *Bucket) install(f *files, root *os.Root, from, p string, own *blob.Meter) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return false, blob.ErrDeleted
	}
	name := b.name(p)
	old, err := b.replaced(root, p)
	if err != nil {
		return false, err
	}
	made, err := makeDirectories(root, path.Dir(name))
	if err != nil {
		return false, err
	}
	if err := root.Rename(from, name); err != nil {
		return false, err
	}
	own.Release(old)
	f.meter.Release(old)
	return true, syncDirectories(root, append(made, path.Dir(name)))
}

// replaced returns what the file with the path has now. A file of another path is not replaced: that is one whose path
// differs in upper case, on a file system that does not distinguish it.
func (b *Bucket) replaced(root *os.Root, p string) (blob.Usage, error) {
	file, err := root.Open(b.name(p))
	if err != nil {
		if errors.Is(notFound(err), blob.ErrNotFound) {
			return blob.Usage{}, nil
		}
		return blob.Usage{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return blob.Usage{}, err
	}
	text := make([]byte, headerSize(p))
	n, _ := io.ReadFull(file, text)
	if after, ok := strings.CutPrefix(string(text[:n]), mark); ok && len(after) > digits && !strings.HasPrefix(after[digits:], " "+p+"\n") && strings.EqualFold(after[digits:], " "+p+"\n") {
		return blob.Usage{}, &blob.ArgumentError{Argument: "path", Why: "differs from that of another file only in upper case, which the gateway's disk does not distinguish"}
	}
	return blob.Usage{Bytes: contentSize(p, info.Size()), Files: 1}, nil
}

// makeDirectories makes a directory and those above it. It returns the ones in which another was made.
func makeDirectories(root *os.Root, name string) (changed []string, err error) {
	var missing []string
	for at := name; at != "."; at = path.Dir(at) {
		if _, err := root.Lstat(at); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		missing = append(missing, at)
	}
	for _, at := range slices.Backward(missing) {
		if err := root.Mkdir(at, orgMode); err != nil {
			return nil, err
		}
		changed = append(changed, path.Dir(at))
	}
	return changed, nil
}

// syncDirectories puts the names in directories on disk.
func syncDirectories(root *os.Root, names []string) error {
	for _, name := range names {
		dir, err := root.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
			return err
		}
	}
	return nil
}

func syncPath(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Delete implements [blob.Bucket].
func (b *Bucket) Delete(_ context.Context, p string) error {
	if err := blob.CheckPath(p); err != nil {
		return err
	}
	f, err := b.store.files(b.space)
	if err != nil {
		return err
	}
	root, err := f.root()
	if err != nil {
		return notFound(err)
	}
	defer root.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	name := b.name(p)
	info, err := root.Lstat(name)
	if err != nil {
		return notFound(err)
	}
	if !info.Mode().IsRegular() {
		return blob.ErrNotFound
	}
	if err := root.Remove(name); err != nil {
		return notFound(err)
	}
	less := blob.Usage{Bytes: contentSize(p, info.Size()), Files: 1}
	f.bucket(b.directory).Release(less)
	f.meter.Release(less)
	at := path.Dir(name)
	for at != "." && root.Remove(at) == nil { // empty directories
		at = path.Dir(at)
	}
	return syncDirectories(root, []string{at})
}

// Usage implements [blob.Bucket].
func (b *Bucket) Usage(context.Context) (blob.Usage, error) {
	f, err := b.store.files(b.space)
	if err != nil {
		return blob.Usage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bucket(b.directory).Used(), nil
}
