package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
)

// A backup is a tar archive: the manifest first, then the files that it names, in
// its order and with nothing else.
const (
	manifestFile = "turnpike-backup.json"
	bundleFormat = 1
	maxManifest  = 64 << 10    // bytes
	filesFile    = "files.tar" // of buckets on disk; absent if there are none
)

// bundled are the names of the files that a backup may hold. It always holds the
// database.
func bundled() []string {
	return []string{app.AuditKeyFile, app.CheckpointsFile, app.DatabaseFile, filesFile}
}

// manifest says what a backup holds.
type manifest struct {
	Format    int           `json:"turnpike_backup"` // bundleFormat
	CreatedAt time.Time     `json:"created_at"`      // when the copy of the database began
	Build     string        `json:"build"`           // the program that has made it
	Files     []bundledFile `json:"files"`
}

// bundledFile is one file of a backup.
type bundledFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// check returns an error unless this program can restore what the manifest names.
func (m *manifest) check() error {
	if m.Format == 0 {
		return errors.New("not a Turnpike backup")
	}
	if m.Format != bundleFormat {
		return fmt.Errorf("the backup has format %d; this version of the program reads format %d", m.Format, bundleFormat)
	}
	seen := map[string]bool{}
	for _, f := range m.Files {
		if !slices.Contains(bundled(), f.Name) || seen[f.Name] || f.Size < 0 {
			return fmt.Errorf("not a valid backup: file %q", f.Name)
		}
		seen[f.Name] = true
	}
	if !seen[app.DatabaseFile] {
		return errors.New("not a valid backup: it has no " + app.DatabaseFile)
	}
	return nil
}

// describe returns the entry of a file in dir.
func describe(ctx context.Context, dir, name string, seen *meter) (bundledFile, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return bundledFile{}, err
	}
	defer f.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, seen), interruptible{ctx, f})
	return bundledFile{name, n, hex.EncodeToString(sum.Sum(nil))}, err
}

// writeBundle writes the archive of the files of the manifest, which are in dir.
func writeBundle(ctx context.Context, out io.Writer, dir string, m *manifest, seen *meter) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	archive := tar.NewWriter(out)
	add := func(name string, size int64, content io.Reader) error {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: m.CreatedAt}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(io.MultiWriter(archive, seen), interruptible{ctx, content})
		return err
	}
	text = append(text, '\n')
	if err := add(manifestFile, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	for _, f := range m.Files {
		if err := func() error {
			file, err := os.Open(filepath.Join(dir, f.Name))
			if err != nil {
				return err
			}
			defer file.Close()
			return add(f.Name, f.Size, file)
		}(); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return archive.Close()
}

// readManifest returns the manifest of an archive whose first entry is not read yet.
func readManifest(archive *tar.Reader) (*manifest, error) {
	h, err := archive.Next()
	if err != nil || h.Name != manifestFile || h.Size > maxManifest {
		return nil, errors.New("not a Turnpike backup")
	}
	text, err := io.ReadAll(archive)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", manifestFile, err)
	}
	m := &manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestFile, err)
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// readBundle writes the files of an archive to dir, which must not have them, and
// checks that they are what the manifest says. Nothing but what it names is written.
func readBundle(ctx context.Context, in io.Reader, dir string, seen *meter) (*manifest, error) {
	archive := tar.NewReader(in)
	m, err := readManifest(archive)
	if err != nil {
		return nil, err
	}
	for _, f := range m.Files {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("the backup is not complete: %s is missing", f.Name)
		}
		if err != nil {
			return nil, err
		}
		if h.Name != f.Name || h.Typeflag != tar.TypeReg || h.Size != f.Size {
			return nil, fmt.Errorf("the backup is damaged: %q where %s is expected", h.Name, f.Name)
		}
		if err := unpack(ctx, filepath.Join(dir, f.Name), archive, f, seen); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	if _, err := archive.Next(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the backup is damaged: it has files that its manifest does not list")
	}
	return m, nil
}

// unpack writes one file, for its owner only. It is on disk when unpack returns.
func unpack(ctx context.Context, path string, content io.Reader, want bundledFile, seen *meter) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, sum, seen), interruptible{ctx, content})
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the backup is not complete")
	case err != nil:
		return err
	case n != want.Size || hex.EncodeToString(sum.Sum(nil)) != want.SHA256:
		return errors.New("the backup is damaged: its checksum does not match the manifest")
	}
	return file.Sync()
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
