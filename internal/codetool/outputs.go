package codetool

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/tool"
)

// maxOutputs is how many files a call can name.
const maxOutputs = 10

// Kept is a file that was stored for the caller. In results it has a preview.
type Kept = event.File

// maxPreview is how many bytes of a text file are in the result.
const maxPreview = 1024

// outputs collects the files that a call names.
type outputs struct {
	paths    []string
	required []file.Required // that the request requires; a call need not make them
	begun    time.Time       // of the call
	inputs   *inputs         // the files of the conversation; nil = there are none

	keep    func(name string, body io.ReadSeeker) (Kept, error)
	kept    []Kept
	missing []builtin.NotProduced
	images  []string // base64 of the images that the call has shown
	ran     bool     // the working directory was read
}

// The images of a call that events have, in bytes. The files have larger ones.
const (
	maxSeen    = 512 << 10 // of one
	maxAllSeen = 1 << 20   // of all
)

// see keeps an image for the events. The code can have put anything in its place.
func (o *outputs) see(dir *os.Root, name string) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSeen+1))
	if err != nil || len(data) > maxSeen || o.seen()+len(data) > maxAllSeen || http.DetectContentType(data) != "image/png" {
		return
	}
	o.images = append(o.images, base64.StdEncoding.EncodeToString(data))
}

// seen returns about how many bytes the images have.
func (o *outputs) seen() (n int) {
	for _, image := range o.images {
		n += base64.StdEncoding.DecodedLen(len(image))
	}
	return n
}

// collect stores the files that the call names, those that the request requires and the call has written, and the images that it has
// shown. It reads nothing outside of the directory.
func (o *outputs) collect(ctx context.Context, dir *os.Root, shown []string) {
	o.ran = true
	for _, name := range o.paths {
		o.add(ctx, dir, name)
	}
	for _, r := range o.required {
		named := func(name string) bool { return file.Inside(name) == r.Path() }
		if !slices.ContainsFunc(o.paths, named) && o.wrote(dir, r.Path()) {
			o.add(ctx, dir, r.Path())
		}
	}
	for _, name := range shown {
		o.see(dir, name)
		if !o.has(dir, name) {
			o.add(ctx, dir, name)
		}
	}
}

// has reports whether the call has kept a file already, or could not: the file itself, or one of the same content.
func (o *outputs) has(dir *os.Root, name string) bool {
	if slices.ContainsFunc(o.missing, func(m builtin.NotProduced) bool { return file.Inside(m.Path) == name }) {
		return true
	}
	info, err := dir.Lstat(name)
	return err == nil && slices.ContainsFunc(o.kept, func(k Kept) bool {
		if k.Path == name || k.Bytes != info.Size() {
			return k.Path == name
		}
		same, err := sameFile(dir, name, k.Bytes, k.SHA256)
		return err == nil && same
	})
}

func (o *outputs) add(ctx context.Context, dir *os.Root, name string) {
	kept, err := o.one(ctx, dir, name)
	if err != nil {
		o.missing = append(o.missing, builtin.NotProduced{Path: name, Why: err.Error()})
		return
	}
	o.kept = append(o.kept, kept)
}

// clockSlack is how much later than a file system the clock of the process can be.
const clockSlack = 20 * time.Millisecond

// wrote reports whether the call has written a file. One of an earlier call is there already.
func (o *outputs) wrote(dir *os.Root, name string) bool {
	info, err := dir.Stat(name)
	return err == nil && !info.ModTime().Before(o.begun.Add(-clockSlack))
}

func (o *outputs) one(ctx context.Context, dir *os.Root, name string) (Kept, error) {
	if ctx.Err() != nil {
		return Kept{}, errors.New("there was no time left to store it")
	}
	// The code can have made a pipe, which would wait for somebody who writes.
	at := file.Inside(name)
	f, err := dir.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Kept{}, errors.New("the code has made no such file")
	case err != nil:
		return Kept{}, errors.New("it is no file of the working directory")
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return Kept{}, errors.New("it is not a regular file")
	}
	if o.inputs.unchanged(f, at) {
		return Kept{}, errors.New("it is a file of the conversation, and the code has not changed it")
	}
	kept, err := o.keep(at, f)
	if err == nil {
		kept.Path, kept.Preview = at, preview(f)
	}
	return kept, err
}

// preview returns the begin of a file that is text; "" = it is not.
func preview(f io.ReaderAt) string {
	data := make([]byte, maxPreview+utf8.UTFMax)
	n, err := f.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	whole := n <= maxPreview
	if data = data[:n]; !whole {
		data = data[:maxPreview]
		for i := 1; i < utf8.UTFMax && !utf8.Valid(data); i++ { // the last character may be cut
			data = data[:maxPreview-i]
		}
	}
	if text := string(data); utf8.Valid(data) && readable(text) == text {
		return text
	}
	return ""
}

// checkOutputs returns what is wrong with the files that a call names.
func checkOutputs(paths []string) error {
	if len(paths) > maxOutputs {
		return fmt.Errorf("outputs names %d files; at most %d are allowed", len(paths), maxOutputs)
	}
	for _, p := range paths {
		if p == "" || len(p) > 1000 || strings.ContainsRune(p, 0) {
			return fmt.Errorf("outputs has %q, which is no path", p)
		}
	}
	return nil
}

// told returns the outputs, as the model is told of them. driver is what ran the code.
func (o *outputs) told(driver string) ([]Kept, []builtin.NotProduced) {
	if !o.ran {
		for _, p := range o.paths {
			o.missing = append(o.missing, builtin.NotProduced{Path: p, Why: "the driver " + driver + " does not give files to the gateway"})
		}
	}
	return o.kept, o.missing
}

// notes are what the model is told of files in sentences.
func (o *outputs) notes(of sandbox.Outcome) (notes []string) {
	if o.inputs != nil {
		notes = append(notes, o.inputs.notes...)
	}
	for _, n := range of.Notes {
		notes = append(notes, "Not shown to the user: "+readable(n)+".")
	}
	return notes
}

// keeper returns the function that stores a file of a call.
func (t *codeExecute) keeper(ctx context.Context, c tool.Call) func(string, io.ReadSeeker) (Kept, error) {
	return func(name string, body io.ReadSeeker) (Kept, error) { return t.o.Keep(ctx, c, name, body) }
}
