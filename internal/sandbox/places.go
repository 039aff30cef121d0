package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// Places knows in which process's directory each session has its files. A session is named by a text that does not show its name.
// The methods are safe for concurrent use.
type Places interface {
	// Take notes that a session is at a place from now on, and returns where it was; "" = nowhere.
	Take(ctx context.Context, org, session, place string) (before string, err error)
	// Forget removes sessions of an org.
	Forget(ctx context.Context, org string, sessions []string) error
	// At returns the sessions that are at a place. It may forget those that were not used for 30 days.
	At(ctx context.Context, place string) ([]Placed, error)
}

// Placed is a session of an org.
type Placed struct{ Org, Session string }

// forgetTime bounds Places.Forget, which nobody waits for otherwise.
const forgetTime = 5 * time.Second

// bring makes a session, which is busy, one of this process, and reports whether it has lost its state by that. What is left here from
// before it went elsewhere is removed.
func (m *Manager) bring(ctx context.Context, driver Driver, s *session) (lost bool, err error) {
	if m.o.Places == nil || !keepsFiles(driver) {
		return false, nil
	}
	dir := m.directoryOf(driver.Name(), s.key)
	before, err := m.o.Places.Take(ctx, s.org, filepath.Base(dir), m.o.Place)
	if err != nil {
		m.o.Log.Error("it is not known which replica has the variables of a code session", "org", s.org, "error", err)
		return false, errors.New("the code was not run: the gateway could not ask its database which replica has the variables of this session")
	}
	if before != "" && before != m.o.Place {
		if s.interpreter != nil {
			s.interpreter.Close()
			s.interpreter = nil
		}
		m.removeDirectory(dir)
		return true, nil
	}
	return before != "" && s.interpreter == nil, nil
}

// forget has the sessions with these directories forgotten.
func (m *Manager) forget(org string, dirs []string) {
	if m.o.Places == nil {
		return
	}
	sessions := make([]string, len(dirs))
	for i, dir := range dirs {
		sessions[i] = filepath.Base(dir)
	}
	ctx, cancel := context.WithTimeout(context.Background(), forgetTime)
	defer cancel()
	if err := m.o.Places.Forget(ctx, org, sessions); err != nil {
		m.o.Log.Error("the files of a code session stay on other replicas until they were not used for a day", "org", org, "error", err)
	}
}

// sweepPlaces removes the files of sessions that are not at this place any more.
func (m *Manager) sweepPlaces(ctx context.Context) error {
	if m.o.Places == nil {
		return nil
	}
	var found []string                           // before At: one that comes meanwhile is not in it
	orgs, _ := os.ReadDir(m.sessionsDirectory()) // without it there is nothing to remove
	for _, org := range orgs {
		dir := filepath.Join(m.sessionsDirectory(), org.Name())
		entries, _ := os.ReadDir(dir) // it was removed meanwhile
		for _, e := range entries {
			found = append(found, filepath.Join(dir, e.Name()))
		}
	}
	here, err := m.o.Places.At(ctx, m.o.Place)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, p := range here {
		known[filepath.Join(m.orgDirectory(p.Org), p.Session)] = true
	}
	for _, dir := range found {
		if !known[dir] && !m.inUse(dir) {
			m.removeDirectory(dir)
			_ = os.Remove(filepath.Dir(dir)) // if it is empty
		}
	}
	return nil
}
