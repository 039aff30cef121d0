package database

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// ErrReplaced reports that a file of the store was deleted, moved or replaced while it
// was open. Later writes would go to a file that has no name.
var ErrReplaced = errors.New("a file of the database was deleted or replaced while it was in use")

// watchInterval is how often the files are checked.
const watchInterval = 250 * time.Millisecond

// watchedFiles are the store's open files: the database, its write-ahead log, the log's
// index, and the lock file.
type watchedFiles struct {
	opened map[string]os.FileInfo // as they were on opening, by path
	stop   func()                 // stops the check; may be called more than once
	done   sync.WaitGroup
}

// watch starts to check the store's files. It calls gone once, with an error that
// wraps ErrReplaced, when a path no longer leads to the file that was opened.
func watch(path string, gone func(error)) (*watchedFiles, error) {
	stop := make(chan struct{})
	f := &watchedFiles{opened: map[string]os.FileInfo{}, stop: sync.OnceFunc(func() { close(stop) })}
	for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			return nil, err
		}
		f.opened[path+suffix] = info
	}
	f.done.Go(func() {
		ticks := time.NewTicker(watchInterval)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
			}
			if err := f.check(); err != nil {
				gone(err)
				return
			}
		}
	})
	return f, nil
}

// check checks the files once. It ignores errors other than a missing file, because
// they do not show that a file is gone.
func (f *watchedFiles) check() error {
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

// close stops the check and waits for its goroutine.
func (f *watchedFiles) close() {
	f.stop()
	f.done.Wait()
}
