package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// Bounds of the directories of sessions. A directory without files says that its session existed.
const (
	maxDirectories = 200     // of an org; the oldest are removed
	maxOrgFiles    = 1 << 30 // bytes of an org; the files of the oldest are removed
	keepFiles      = 24 * time.Hour
	keepDirectory  = 30 * 24 * time.Hour
)

// hashed names a directory without what it is for: a name may hold any character.
func hashed(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// directory returns the directory of a session, which is created, and whether it existed. Drivers do
// not share directories: what one allows in it, such as links, another may follow.
func (m *Manager) directory(driver string, k key) (dir string, existed bool, err error) {
	org := m.orgDirectory(k.org)
	if err := os.MkdirAll(org, 0o700); err != nil {
		return "", false, err
	}
	m.bound(org)
	dir = m.directoryOf(driver, k)
	for range 10 {
		if err = os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		if more := os.MkdirAll(org, 0o700); more != nil { // it was empty, and was removed meanwhile
			return "", false, more
		}
	}
	if errors.Is(err, fs.ErrExist) {
		now := time.Now()
		return dir, true, os.Chtimes(dir, now, now)
	}
	return dir, false, err
}

// directoryOf returns the path of the directory of a session.
func (m *Manager) directoryOf(driver string, k key) string {
	return filepath.Join(m.orgDirectory(k.org), driver+"-"+string(k.language)+"-"+hashed(k.name))
}

// orgDirectory returns where the directories of an org are.
func (m *Manager) orgDirectory(org string) string {
	return filepath.Join(m.sessionsDirectory(), hashed(org))
}

func (m *Manager) sessionsDirectory() string { return filepath.Join(m.o.Dir, "sessions") }

// removeDirectory removes what is in the directory of an org.
func (m *Manager) removeDirectory(dir string) {
	if err := removeAll(dir); err != nil {
		m.o.Log.Error("files of code were not removed", "in", dir, "error", err)
	}
}

// removeAll removes a directory in which code was, also if the code has closed directories to the user that both of them are.
func removeAll(dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	above, err := os.OpenRoot(filepath.Dir(dir)) // no link leads out of it
	if err != nil {
		return err
	}
	defer above.Close()
	_ = fs.WalkDir(above.FS(), filepath.Base(dir), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			_ = above.Chmod(filepath.FromSlash(path), 0o700) // before the walk reads it
		}
		return nil //nolint:nilerr // what remains is an error of RemoveAll
	})
	return os.RemoveAll(dir)
}

// usage is a directory of a session.
type usage struct {
	path  string
	at    time.Time
	bytes int64
}

// bound makes room in the directory of an org, beginning with what was used least recently.
func (m *Manager) bound(org string) {
	list, total := usages(org), int64(0)
	for _, u := range list {
		total += u.bytes
	}
	for i, u := range list {
		switch {
		case m.inUse(u.path):
		case len(list)-i >= maxDirectories:
			m.removeDirectory(u.path)
			total -= u.bytes
		case total > maxOrgFiles && u.bytes > 0:
			m.empty(u)
			total -= u.bytes
		}
	}
}

// removeOld removes files and directories that were not used for long.
func (m *Manager) removeOld(now time.Time) {
	orgs, _ := os.ReadDir(m.sessionsDirectory()) // an error is one of the next call, too
	for _, org := range orgs {
		path := filepath.Join(m.sessionsDirectory(), org.Name())
		for _, u := range usages(path) {
			switch age := now.Sub(u.at); {
			case m.inUse(u.path):
			case age > keepDirectory:
				m.removeDirectory(u.path)
			case age > keepFiles && u.bytes > 0:
				m.empty(u)
			}
		}
		_ = os.Remove(path) // if it is empty
	}
}

// inUse reports whether the directory is that of a session with an interpreter.
func (m *Manager) inUse(dir string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.sessions {
		if d := m.chosen[k.language]; d != nil && dir == m.directoryOf(d.Name(), k) {
			return true
		}
	}
	return false
}

// RemoveOrg ends the sessions of an org and removes its files; those of a call that is in progress when it is over. The
// caller sees to it that no more calls of the org come.
func (m *Manager) RemoveOrg(org string) {
	m.doom(func(s *session) bool { return s.org == org })
	m.removeDirectory(m.orgDirectory(org))
}

// RemoveSession ends a session and removes its files; those of a call that is in progress when it is over.
func (m *Manager) RemoveSession(org, name string) {
	m.doom(func(s *session) bool { return s.org == org && s.name == name })
	var dirs []string
	for language, d := range m.chosen {
		dir := m.directoryOf(d.Name(), key{org, name, language})
		if dirs = append(dirs, dir); !m.inUse(dir) {
			m.removeDirectory(dir)
		}
	}
	_ = os.Remove(m.orgDirectory(org)) // if it is empty
	m.forget(org, dirs)
}

// doom ends sessions, those that are busy when they are not any more.
func (m *Manager) doom(of func(*session) bool) {
	m.mu.Lock()
	for _, s := range m.sessions {
		s.doomed = s.doomed || of(s)
	}
	m.mu.Unlock()
	m.endAll(of)
}

// Sweep removes the files of orgs that do not exist, such as those of an org that was deleted while the gateway did not run, and
// returns how many orgs had some. exist returns the ids of all orgs. It also removes the files of sessions that were deleted, or went on,
// elsewhere.
func (m *Manager) Sweep(ctx context.Context, exist func() ([]string, error)) (removed int, err error) {
	if err := m.sweepPlaces(ctx); err != nil {
		return 0, err
	}
	entries, err := os.ReadDir(m.sessionsDirectory()) // before exist is called: an org that is created meanwhile has no directory in it
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	ids, err := exist()
	if err != nil {
		return 0, err
	}
	known := map[string]bool{}
	for _, id := range ids {
		known[hashed(id)] = true
	}
	for _, e := range entries {
		if known[e.Name()] {
			continue
		}
		if more := removeAll(filepath.Join(m.sessionsDirectory(), e.Name())); more != nil {
			err = errors.Join(err, more)
			continue
		}
		removed++
	}
	return removed, err
}

// usages returns the directories of an org, the least recently used first.
func usages(org string) []usage {
	entries, _ := os.ReadDir(org) // without an org there is nothing to list
	var list []usage
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		u := usage{path: filepath.Join(org, e.Name()), at: info.ModTime()}
		u.bytes, _ = SizeOf(u.path)
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b usage) int { return a.at.Compare(b.at) })
	return list
}

// SizeOf returns the size of all files below a directory, and their number. It follows no links. What it cannot look into, such as
// a directory that is too deep or that the code has closed, counts as more files than there may be.
func SizeOf(dir string) (bytes int64, files int) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENAMETOOLONG) {
			files = FilesCount + 1
			return fs.SkipAll
		}
		if err != nil || path == dir {
			return nil //nolint:nilerr // it was removed meanwhile
		}
		if files++; files > FilesCount {
			return fs.SkipAll
		}
		if info, err := e.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes, files
}

// empty removes the files of a session and keeps its directory, and its time.
func (m *Manager) empty(u usage) {
	entries, _ := os.ReadDir(u.path)
	for _, e := range entries {
		m.removeDirectory(filepath.Join(u.path, e.Name()))
	}
	_ = os.Chtimes(u.path, u.at, u.at)
}

// clear empties the directory of a session, in which no code runs, if there are too many files in it: each session would end at once.
func (m *Manager) clear(driver Driver, k key) {
	dir := m.directoryOf(driver.Name(), k)
	if !keepsFiles(driver) || watchFiles(dir)() == "" {
		return
	}
	m.removeDirectory(dir)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		m.o.Log.Error("the directory of a code session was not made", "org", k.org, "error", err)
	}
}

// watchFiles returns a function that says when the files of a session are too many.
func watchFiles(dir string) func() string {
	return func() string {
		switch bytes, files := SizeOf(dir); {
		case bytes > FilesBytes:
			return "its files were larger than 512 MiB together; its next call begins without them"
		case files > FilesCount:
			return "it had more than 10,000 files, or directories that cannot be looked into; its next call begins without them"
		}
		return ""
	}
}
