package codetool

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/tool"
)

// WithFiles implements [toolexec.Receiver].
func (t *codeExecute) WithFiles(files *file.Set) tool.Tool { return t.with(files) }

func (t *codeExecute) with(files *file.Set) *codeExecute {
	with := *t
	with.files = files
	return &with
}

// describeFiles says which files of the conversation are in the working directory. previews says that it shows how they begin.
func describeFiles(files *file.Set, where string, previews bool) string {
	if files == nil || len(files.Files) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, " The working directory%s has these files of the conversation:", where)
	for _, g := range files.Files {
		fmt.Fprintf(&b, "\n- %q", g.Name)
		if g.MediaType != "" {
			fmt.Fprintf(&b, ", %s", g.MediaType)
		}
		fmt.Fprintf(&b, ", %d bytes", g.Bytes)
		if g.Preview != "" && previews {
			fmt.Fprintf(&b, ", which begins with %q", g.Preview)
		}
	}
	return b.String()
}

// inputs puts the files of a conversation into the working directory of a call.
type inputs struct {
	files *file.Set
	open  func(ctx context.Context, in file.Input) (io.ReadCloser, error)
	there map[string]string // digests of the files that are in the directory, by their paths
	notes []string          // for the model
}

// write writes those files that are not there. A file of another content stays: then the file of the conversation gets
// another name, and the model is told.
func (in *inputs) write(ctx context.Context, dir *os.Root) {
	in.there = map[string]string{}
	for _, g := range in.files.Files {
		name, err := in.one(ctx, dir, g)
		switch {
		case err != nil:
			in.notes = append(in.notes, fmt.Sprintf("The file %q of the conversation is not in the working directory: %v.", g.Name, err))
		case name != g.Name:
			in.notes = append(in.notes, fmt.Sprintf("The working directory has another file named %q; the one of the conversation is %q.", g.Name, name))
		}
	}
}

// maxNumbered is how many names are tried for a file.
const maxNumbered = 100

// one puts one file into the directory, and returns its name there.
func (in *inputs) one(ctx context.Context, dir *os.Root, g file.Given) (string, error) {
	if g.Bytes > file.MaxGivenBytes { // of a message that came later
		return "", fmt.Errorf("it has more than %d bytes", file.MaxGivenBytes)
	}
	var digest string
	if g.Input != nil {
		digest = g.Input.SHA256
	} else {
		h := sha256.New()
		size, err := io.Copy(h, g.Content())
		if err != nil {
			return "", errors.New("its content is not valid base64")
		}
		digest, g.Bytes = hex.EncodeToString(h.Sum(nil)), size
	}
	name := g.Name
	for n := 2; ; n++ {
		switch same, err := sameFile(dir, name, g.Bytes, digest); {
		case errors.Is(err, fs.ErrNotExist):
			return name, in.put(ctx, dir, g, name, digest)
		case err == nil && same:
			in.there[name] = digest
			return name, nil
		case n > maxNumbered:
			return "", errors.New("other files have its name")
		}
		name = file.Numbered(g.Name, n)
	}
}

// put writes a file under a name that is free.
func (in *inputs) put(ctx context.Context, dir *os.Root, g file.Given, name, digest string) error {
	if ctx.Err() != nil {
		return errors.New("there was no time left to write it")
	}
	var body io.ReadCloser
	if g.Input == nil {
		body = io.NopCloser(g.Content())
	} else {
		var err error
		if body, err = in.open(ctx, *g.Input); err != nil {
			return err
		}
	}
	defer body.Close()
	if err := writeInput(dir, name, io.LimitReader(body, file.MaxGivenBytes)); err != nil {
		return errors.New("it could not be written")
	}
	in.there[name] = digest
	return nil
}

// writeInput writes a whole file or none. Its time is earlier than that of the call, which has not made it.
func writeInput(dir *os.Root, name string, body io.Reader) (err error) {
	temporary := ".input-" + rand.Text()
	f, err := dir.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = dir.Remove(temporary)
		}
	}()
	_, err = io.Copy(f, body)
	// The code may run as another user; the directory is closed to all others.
	if err := errors.Join(err, f.Chmod(0o666), f.Close()); err != nil {
		return err
	}
	earlier := time.Now().Add(-time.Minute)
	return errors.Join(dir.Chtimes(temporary, earlier, earlier), dir.Rename(temporary, name))
}

// sameFile reports whether a file of the directory has a content. The error wraps [fs.ErrNotExist] if there is nothing of the name.
func sameFile(dir *os.Root, name string, size int64, digest string) (bool, error) {
	info, err := dir.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() != size {
		return false, err
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false, errors.New("it cannot be opened")
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false, err
	}
	return digestOf(f) == digest, nil
}

// digestOf returns the SHA-256 of what a file has, as far as it can be a file of a conversation; "" = it cannot be read.
func digestOf(r io.Reader) string {
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(r, file.MaxGivenBytes+1)); err != nil {
		return ""
	}
	return hex.EncodeToString(h.Sum(nil))
}

// unchanged reports whether a path is that of a file of the conversation which has its content still.
func (in *inputs) unchanged(f *os.File, at string) bool {
	if in == nil || in.there[at] == "" {
		return false
	}
	same := digestOf(f) == in.there[at]
	_, err := f.Seek(0, io.SeekStart)
	return same && err == nil
}
