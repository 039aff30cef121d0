package disk

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
)

// Archive writes the files of a Store's directory as a tar archive, also while a gateway uses it, and returns how many
// there are. Each is whole: it is the one that was there when it was read.
func Archive(ctx context.Context, directory string, out io.Writer) (n int, err error) {
	archive := tar.NewWriter(out)
	root, err := os.OpenRoot(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, archive.Close()
	}
	if err != nil {
		return 0, err
	}
	defer root.Close()
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // deleted since
			return nil
		}
		if err != nil || !d.Type().IsRegular() || checkArchived(name) != nil {
			return err
		}
		added, err := addTo(ctx, archive, root, name)
		if added {
			n++
		}
		return err
	})
	return n, errors.Join(err, archive.Close())
}

// addTo adds a file to an archive, unless it was deleted.
func addTo(ctx context.Context, archive *tar.Writer, root *os.Root, name string) (bool, error) {
	file, err := root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: fileMode, ModTime: info.ModTime()}); err != nil {
		return false, err
	}
	_, err = io.Copy(archive, interruptible{ctx, file})
	return true, err
}

// checkArchived returns an error unless the name is that of a file of a Store.
func checkArchived(name string) error {
	org, rest, _ := strings.Cut(name, "/")
	if _, ok := spaceOf(org); !ok {
		return fmt.Errorf("%q is not a file of a bucket", name)
	}
	p, ok := pathOf(rest)
	_, p, inside := strings.Cut(p, "/")
	if !ok || !inside || blob.CheckPath(p) != nil {
		return fmt.Errorf("%q is not a file of a bucket", name)
	}
	return nil
}

// Extract writes the files of an archive of Archive to a directory, which is made and must not exist. They are on disk
// when it returns. Each is checked: its name, and that its content has the digest that it says.
func Extract(ctx context.Context, in io.Reader, directory string) (n int, err error) {
	if err := os.Mkdir(directory, orgMode); err != nil {
		return 0, err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	archive := tar.NewReader(in)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return n, syncAll(root)
		}
		if err != nil {
			return n, err
		}
		if err := checkArchived(h.Name); err != nil {
			return n, err
		}
		if h.Typeflag != tar.TypeReg {
			return n, fmt.Errorf("%q is not a regular file", h.Name)
		}
		if err := extract(ctx, root, h, archive); err != nil {
			return n, fmt.Errorf("%s: %w", h.Name, err)
		}
		n++
	}
}

func extract(ctx context.Context, root *os.Root, h *tar.Header, content io.Reader) (err error) {
	if err := root.MkdirAll(path.Dir(h.Name), orgMode); err != nil {
		return err
	}
	file, err := root.OpenFile(h.Name, os.O_CREATE|os.O_EXCL|os.O_RDWR, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := io.Copy(file, interruptible{ctx, content}); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := check(file, h.Name); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return root.Chtimes(h.Name, h.ModTime, h.ModTime)
}

// check compares the digest of a file that is at its beginning.
func check(file *os.File, name string) error {
	_, rest, _ := strings.Cut(name, "/")
	p, _ := pathOf(rest)
	_, p, _ = strings.Cut(p, "/")
	digest, err := readHeader(file, p)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, newContent(file, digest))
	return err
}

// syncAll puts the names of all directories on disk.
func syncAll(root *os.Root) error {
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDirectories(root, []string{name})
	})
}

// Entry is a file outside of a Store.
type Entry struct {
	Space    Space
	Bucket   string
	Path     string
	Size     int64
	SHA256   string // of the content, in hexadecimal
	Modified time.Time
}

// Name returns the name that the file has in the directory of a Store, with slashes.
func (e Entry) Name() string {
	return e.Space.directory() + "/" + (&Bucket{directory: lower(e.Bucket) + dirEnd}).name(e.Path)
}

// Walk calls do for each file of a Store's directory, in one order always. The content ends with blob.ErrDamaged if it is not that
// of its digest. No directory has no files. No Store may use it.
func Walk(ctx context.Context, directory string, do func(e Entry, content io.Reader) error) error {
	root, err := os.OpenRoot(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil || !d.Type().IsRegular() || checkArchived(name) != nil {
			return errors.Join(err, ctx.Err())
		}
		file, err := root.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		e, err := entryOf(name, file)
		if err == nil {
			err = do(e, newContent(file, e.SHA256))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
}

// entryOf reads the header of a file that is open at its beginning.
func entryOf(name string, file *os.File) (e Entry, err error) {
	orgName, rest, _ := strings.Cut(name, "/")
	e.Space, _ = spaceOf(orgName) // checkArchived has
	p, _ := pathOf(rest)
	bucket, p, _ := strings.Cut(p, "/")
	e.Bucket, e.Path = raised(bucket), p
	info, err := file.Stat()
	if err != nil {
		return e, err
	}
	e.Size, e.Modified = contentSize(p, info.Size()), info.ModTime()
	e.SHA256, err = readHeader(file, p)
	return e, err
}

// Write puts a file into a Store's directory, which no Store uses; one with its name is replaced. It is on disk when Write returns,
// but for the names of directories: see [SyncNames]. The error wraps blob.ErrDamaged if the content is not that of the digest.
func Write(ctx context.Context, directory string, e Entry, content io.Reader) (err error) {
	name := e.Name()
	if err := checkArchived(name); err != nil {
		return err
	}
	if err := os.MkdirAll(directory, orgMode); err != nil {
		return err
	}
	root, err := os.OpenRoot(directory)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.MkdirAll(path.Dir(name), orgMode); err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_RDWR, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := io.Copy(file, interruptible{ctx, io.MultiReader(strings.NewReader(header(e.Path, e.SHA256)), content)}); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := check(file, name); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return root.Chtimes(name, e.Modified, e.Modified)
}

// SyncNames puts the names of all directories of a Store's directory on disk. No directory has none.
func SyncNames(directory string) error {
	root, err := os.OpenRoot(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(syncAll(root), root.Close())
}
