package child

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

const (
	maxPath   = 1000      // bytes of a path
	filePiece = 768 << 10 // bytes that go to or from JavaScript at once, as base64; the prelude has it as well
)

// files are the regular files of the working directory, for JavaScript. Every path goes through root, so that neither ".."
// nor a link leads out of the directory, with or without a confinement by the kernel. Nothing but a regular file is opened:
// a pipe or a device could block.
//
// A file that JavaScript writes is a value before, so that the memory limit of the interpreter bounds it.
type files struct {
	root *os.Root
	used *usage // nil = not measured since the call began
}

// usage is what the working directory has.
type usage struct {
	bytes int64
	files int
}

func openFiles() (*files, error) {
	root, err := os.OpenRoot(".")
	if err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	return &files{root: root}, nil
}

// begin begins a call: the gateway may have put files into the directory.
func (f *files) begin() { f.used = nil }

// serve is the function that the prelude calls: serve(what, path, a, b) returns {value, error}. It checks what it gets,
// because code can change what the prelude does.
func (f *files) serve(args []any) (any, error) {
	if len(args) != 4 {
		return nil, errors.New("files take four arguments")
	}
	what, _ := args[0].(string)
	name, _ := args[1].(string)
	value, err := f.do(what, name, args[2], args[3])
	if err != nil {
		return map[string]any{"value": nil, "error": cause(err)}, nil
	}
	return map[string]any{"value": value, "error": ""}, nil
}

// do does what the prelude asks for: list, size, text, bytes (from an offset), write (a text), create (of a size), and
// put (at an offset, in base64).
func (f *files) do(what, name string, a, b any) (any, error) {
	if what == "list" {
		return f.list()
	}
	at, err := inside(name)
	if err != nil {
		return nil, err
	}
	switch what {
	case "size":
		return f.size(at)
	case "text":
		return f.text(at)
	case "bytes":
		return f.bytes(at, number(a))
	case "write":
		text, _ := a.(string)
		if err := f.create(at, float64(len(text))); err != nil {
			return nil, err
		}
		return nil, f.put(at, 0, []byte(text))
	case "create":
		return nil, f.create(at, number(a))
	case "put":
		text, _ := b.(string)
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		return nil, f.put(at, number(a), data)
	}
	return nil, fmt.Errorf("there is no %q", what)
}

// inside returns a path in the working directory, for the system. The directory has the name /work, too.
func inside(name string) (string, error) {
	if name == "" || len(name) > maxPath {
		return "", fmt.Errorf("the path has %d bytes; use 1 to %d", len(name), maxPath)
	}
	clean := path.Clean(strings.TrimPrefix(name, "/work/"))
	if clean == "." {
		return "", errDirectory
	}
	at, err := filepath.Localize(clean)
	switch {
	case path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../"):
		return "", errors.New("the path is outside of the working directory; use a relative path")
	case err != nil:
		return "", errors.New("the path is not valid")
	}
	return at, nil
}

var (
	errDirectory  = errors.New("it is a directory")
	errNotRegular = errors.New("it is not a regular file")
)

// open opens a regular file for reading.
func (f *files) open(at string) (*os.File, int64, error) {
	info, err := f.root.Lstat(at)
	if err := regular(info, err); err != nil {
		return nil, 0, err
	}
	file, err := f.root.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err = file.Stat()
	if err := regular(info, err); err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// regular returns why something is not a regular file.
func regular(info fs.FileInfo, err error) error {
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errDirectory
	case !info.Mode().IsRegular():
		return errNotRegular
	}
	return nil
}

// size returns the size of a file that fits into the memory of the interpreter.
func (f *files) size(at string) (int64, error) {
	file, size, err := f.open(at)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return size, fits(size)
}

func fits(size int64) error {
	if size > quickjsMemory {
		return fmt.Errorf("it has %d bytes, and the interpreter has memory for %d", size, quickjsMemory)
	}
	return nil
}

// text returns a file that is text.
func (f *files) text(at string) (string, error) {
	file, size, err := f.open(at)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := fits(size); err != nil {
		return "", err
	}
	var b strings.Builder
	b.Grow(int(size))
	if _, err := io.Copy(&b, io.LimitReader(file, quickjsMemory)); err != nil {
		return "", err
	}
	if !utf8.ValidString(b.String()) {
		return "", errors.New(`it is not text in UTF-8; read its bytes with readFile(path, "bytes")`)
	}
	return b.String(), nil
}

// bytes returns a piece of a file, in base64.
func (f *files) bytes(at string, offset float64) (string, error) {
	from, err := position(offset)
	if err != nil {
		return "", err
	}
	file, _, err := f.open(at)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data := make([]byte, filePiece)
	n, err := file.ReadAt(data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(data[:n]), nil
}

// position returns a size or an offset of the prelude.
func position(n float64) (int64, error) {
	if !(n >= 0 && n <= sandbox.FilesBytes) || n != math.Trunc(n) {
		return 0, fmt.Errorf("%v is not a size", n)
	}
	return int64(n), nil
}

// create makes a file of a size, with the directories above it. An old content is gone.
func (f *files) create(at string, bytes float64) error {
	size, err := position(bytes)
	if err != nil {
		return err
	}
	if err := regular(f.root.Lstat(at)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.reserve(at, size); err != nil {
		return err
	}
	if err := f.root.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return err
	}
	return f.write(at, os.O_CREATE, func(file *os.File, _ int64) error {
		return errors.Join(file.Truncate(0), file.Truncate(size))
	})
}

// put writes into a file that create has made, and does not make it longer.
func (f *files) put(at string, offset float64, data []byte) error {
	from, err := position(offset)
	if err != nil {
		return err
	}
	return f.write(at, 0, func(file *os.File, size int64) error {
		if from+int64(len(data)) > size {
			return errors.New("it is shorter")
		}
		_, err := file.WriteAt(data, from)
		return err
	})
}

// write opens a file for writing. What is not a regular file is left as it is.
func (f *files) write(at string, flags int, use func(file *os.File, size int64) error) error {
	file, err := f.root.OpenFile(at, os.O_WRONLY|syscall.O_NONBLOCK|flags, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err = regular(info, err); err == nil {
		err = use(file, info.Size())
	}
	return errors.Join(err, file.Close())
}

// reserve counts a file of a size, and returns why it has no room. The gateway ends a session that has more than this,
// whatever the session says.
func (f *files) reserve(at string, size int64) error {
	if f.used == nil {
		f.used = new(usage)
		f.used.bytes, f.used.files = sandbox.SizeOf(".")
	}
	with := usage{f.used.bytes + size, f.used.files}
	for p := at; p != "."; p = filepath.Dir(p) {
		if info, err := f.root.Lstat(p); err == nil {
			if p == at {
				with.bytes -= info.Size()
			}
			break
		}
		with.files++
	}
	switch {
	case with.bytes > sandbox.FilesBytes:
		return fmt.Errorf("the files of the session would have more than %d bytes together", sandbox.FilesBytes)
	case with.files > sandbox.FilesCount:
		return fmt.Errorf("the session would have more than %d files", sandbox.FilesCount)
	}
	*f.used = with
	return nil
}

// list returns the paths of the files, sorted.
func (f *files) list() ([]string, error) {
	found := []string{}
	err := fs.WalkDir(f.root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			found = append(found, path)
		}
		if len(found) > sandbox.FilesCount {
			return fs.SkipAll
		}
		return err
	})
	return found, err
}

// cause returns an error for code. It has no path: the prelude adds the one that the code has used.
func cause(err error) string {
	var at *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.As(err, &at):
		return at.Err.Error()
	}
	return err.Error()
}
