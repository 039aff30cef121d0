package disk

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/blob"
)

// List implements [blob.Bucket].
func (b *Bucket) List(ctx context.Context, q blob.Query) (blob.Page, error) {
	if err := q.Check(); err != nil {
		return blob.Page{}, err
	}
	f, err := b.store.files(b.space)
	if err != nil {
		return blob.Page{}, err
	}
	root, err := f.root()
	if errors.Is(err, fs.ErrNotExist) {
		return blob.Page{}, nil
	}
	if err != nil {
		return blob.Page{}, err
	}
	defer root.Close()
	l := listing{ctx: ctx, root: root, q: q, skip: q.Offset}
	err = l.walk(b.directory, "")
	if errors.Is(err, errFull) {
		err = nil
	}
	return l.page, err
}

// listing walks through a bucket in the order of paths, and reads only directories that can have a file of the query.
type listing struct {
	ctx  context.Context
	root *os.Root
	q    blob.Query
	skip int
	page blob.Page
}

// errFull ends a walk.
var errFull = errors.New("the page is full")

// child is an entry of a directory. Its key sorts it as the paths below it are sorted.
type child struct {
	key  string // its name in paths, with a / after that of a directory
	name string
}

// walk visits what is in the directory with a name. Its paths begin with the path.
func (l *listing) walk(directory, path string) error {
	if err := l.ctx.Err(); err != nil {
		return err
	}
	children, err := l.children(directory)
	if err != nil {
		return err
	}
	for _, c := range children {
		at := path + c.key
		switch {
		case strings.HasSuffix(at, "/"):
			within := strings.HasPrefix(at, l.q.Prefix) || strings.HasPrefix(l.q.Prefix, at)
			before := at < l.q.After && !strings.HasPrefix(l.q.After, at)
			if within && !before {
				err = l.walk(directory+"/"+c.name, at)
			}
		case strings.HasPrefix(at, l.q.Prefix) && at > l.q.After:
			err = l.add(at, directory+"/"+c.name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// add adds a file to the page.
func (l *listing) add(path, name string) error {
	info, err := l.root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) { // deleted since
		return nil
	}
	if err != nil {
		return err
	}
	if l.skip > 0 {
		l.skip--
		return nil
	}
	if len(l.page.Files) == l.q.Limit {
		l.page.More = true
		return errFull
	}
	l.page.Files = append(l.page.Files, blob.Info{Path: path, Size: contentSize(path, info.Size()), Modified: info.ModTime()})
	return nil
}

// children returns the entries of a directory in the order of their keys; none if it does not exist.
func (l *listing) children(directory string) ([]child, error) {
	dir, err := l.root.Open(directory)
	if err != nil {
		if errors.Is(notFound(err), blob.ErrNotFound) {
			return nil, nil
		}
		return nil, err
	}
	defer dir.Close()
	entries, err := dir.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var out []child
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), fileEnd); ok && e.Type().IsRegular() {
			out = append(out, child{name, e.Name()})
		} else if name, ok := strings.CutSuffix(e.Name(), dirEnd); ok && e.IsDir() {
			out = append(out, child{name + "/", e.Name()})
		}
	}
	slices.SortFunc(out, func(a, b child) int { return cmp.Compare(a.key, b.key) })
	return out, nil
}
