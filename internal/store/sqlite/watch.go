package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrReplaced says that a file of the store was deleted, moved or replaced while
// it was open. What is written from then on cannot be found under its name.
var ErrReplaced = errors.New("a file of the database was deleted or replaced while it was in use")

// watchEvery is how long that goes unnoticed.
const watchEvery = 250 * time.Millisecond

// files are those that the store has open: the database, its log, the log's
// index, and the lock that keeps other processes out.
type files struct {
	opened map[string]os.FileInfo // by path
	end    func()                 // may be called more than once
	done   sync.WaitGroup
}

// watch calls gone once, with an error that wraps ErrReplaced, when one of the
// store's files is not the one any more that was opened.
func watch(path string, gone func(error)) (*files, error) {
	stop := make(chan struct{})
	f := &files{opened: map[string]os.FileInfo{}, end: sync.OnceFunc(func() { close(stop) })}
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			return nil, err
		}
		f.opened[path+suffix] = info
	}
	f.done.Go(func() {
		ticks := time.NewTicker(watchEvery)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
			if err := f.look(); err != nil {
				gone(err)
				return
			}
		}
	})
	return f, nil
}

// look ignores what keeps it from looking: it is not known that a file is gone.
func (f *files) look() error {
	for path, opened := range f.opened {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("%w: %s is gone", ErrReplaced, filepath.Base(path))
		case err == nil && !os.SameFile(info, opened):
			return fmt.Errorf("%w: %s is another file", ErrReplaced, filepath.Base(path))
		}
	}
	return nil
}

func (f *files) close() {
	f.end()
	f.done.Wait()
}
