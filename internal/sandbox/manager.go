package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// Options are what a Manager needs.
type Options struct {
	// Drivers are names of drivers, in order of preference, or Auto alone. Empty: no code runs.
	Drivers []string
	// Program starts this program as a child: a path and arguments, to which the name of an interpreter
	// is added. Empty: QuickJS, Wasm, Bwrap and Landlock do not work.
	Program []string
	// Dir is a directory for the files of sessions. It is created.
	Dir string
	// Compiled is a directory for compiled modules, which are machine code. It is created. "" = in Dir.
	Compiled string
	// PythonWasm is the file of the driver Wasm: Python for WASI with its standard library. "" = the one in this
	// program, if Embedded returns one.
	PythonWasm string
	// PythonWasmSHA256 is its digest in hexadecimal; "" = PythonWasmSHA256, the constant.
	PythonWasmSHA256 string
	// URL and Key are those of the service of the driver Remote, and Client sends to it. Nil = it does not
	// work.
	URL, Key string
	Client   http.RoundTripper

	// Places knows where the sessions have their directories, if other processes have sessions of the same orgs; nil = all are in
	// Dir. Place is what it calls Dir: no other process has it, and a restart keeps it.
	Places Places
	Place  string
	// Shared is a secret of these processes, which names sessions for the driver Remote alike in all of them; nil = Dir names them.
	Shared []byte

	MaxSessions       int           // interpreters at a time; 0 = 16
	MaxSessionsPerOrg int           // 0 = 4
	Idle              time.Duration // after which an interpreter ends; 0 = 1 hour
	Log               *slog.Logger  // nil = nothing is logged
}

// Manager keeps the sessions. Its methods are safe for concurrent use.
type Manager struct {
	o       Options
	chosen  map[Language]Driver
	stop    chan struct{}
	work    sync.WaitGroup
	closing sync.Once

	mu       sync.Mutex
	closed   bool
	sessions map[key]*session
	released chan struct{} // closed, and replaced, when a session is not busy any more
}

// key identifies a session.
type key struct {
	org, name string
	language  Language
}

// session is one interpreter, or the place of one that starts.
type session struct {
	key
	busy        bool
	used        time.Time
	doomed      bool        // it ends, and its files are removed, when it is not busy any more
	interpreter Interpreter // nil = it has not started; who made the session busy may read and set it
}

// Request is code to run.
type Request struct {
	Org      string
	Session  string // of the org; calls of one session share variables and files
	Language Language
	Code     string
	Timeout  time.Duration // 0 = DefaultTimeout

	// Prepare writes files into the session's working directory before the code runs. It is not called if the session has
	// no such directory here, as with the driver Remote. Its context ends after collectTimeout. Nil = nothing is written.
	Prepare func(ctx context.Context, dir *os.Root)

	// Collect reads files of the session's working directory after the code has run, before other code of the session
	// does. shown names those that have the images which the code has shown: the code can have put anything else there. It is
	// not called if the session has no such directory here, as with the driver Remote. Its context ends after
	// collectTimeout. Nil = nothing is read.
	Collect func(ctx context.Context, dir *os.Root, shown []string)
}

// collectTimeout bounds [Request].Prepare and [Request].Collect, during which the session is busy.
const collectTimeout = 30 * time.Second

// New returns a Manager. It chooses the drivers and logs the choice. The caller calls Close.
func New(ctx context.Context, o Options) (*Manager, error) {
	o = absolute(o)
	o.MaxSessions = cmp.Or(o.MaxSessions, 16)
	o.MaxSessionsPerOrg = cmp.Or(o.MaxSessionsPerOrg, 4)
	o.Idle = cmp.Or(o.Idle, time.Hour)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	m := &Manager{o: o, stop: make(chan struct{}), sessions: map[key]*session{}, released: make(chan struct{})}
	drivers := knownDrivers(o)
	var err error
	if m.chosen, err = choose(ctx, o.Drivers, drivers, o.Log); err != nil {
		return nil, err
	}
	if len(m.chosen) > 0 {
		m.work.Go(m.maintain)
	}
	for _, d := range m.chosen {
		if p, ok := d.(preparer); ok {
			m.work.Go(func() { p.prepare(m.stop, o.Log) })
		}
	}
	return m, nil
}

// preparer is a driver with work to do before its first session. A driver has one language, or nothing
// to prepare.
type preparer interface {
	// prepare returns early when stop is closed.
	prepare(stop <-chan struct{}, log *slog.Logger)
}

// Runs reports whether there is a driver for at least one language.
func (m *Manager) Runs() bool { return len(m.chosen) > 0 }

// Languages returns those for which there is a driver, Python first.
func (m *Manager) Languages() (all []Language) {
	for _, l := range []Language{Python, JavaScript} {
		if m.chosen[l] != nil {
			all = append(all, l)
		}
	}
	return all
}

// RunsCommands reports whether Python of a session can run programs of the host, such as /bin/sh.
func (m *Manager) RunsCommands() bool {
	d := m.chosen[Python]
	return d != nil && d.Name() == Bwrap
}

// Run runs code in its session, which is started if there is none. An Outcome with Ended says that the
// session has ended; the next call starts a new one. The error is ErrNotConfigured, ErrBusy, an
// *UnavailableError, or the cause of ctx.
func (m *Manager) Run(ctx context.Context, r Request) (Outcome, error) {
	driver := m.chosen[r.Language]
	if driver == nil {
		return Outcome{}, ErrNotConfigured
	}
	limit := cmp.Or(r.Timeout, DefaultTimeout)
	s, err := m.acquire(ctx, limit, key{r.Org, r.Session, r.Language})
	if err != nil {
		return Outcome{}, err
	}
	o, err := m.run(ctx, driver, s, r, limit)
	m.collect(ctx, driver, s, r, o, err == nil)
	if err != nil || o.Ended != "" {
		m.clear(driver, s.key)
	}
	m.release(s, err == nil && o.Ended == "")
	return o, err
}

// collect has the files of a call read. The images that it has shown get their names also if it has failed.
func (m *Manager) collect(ctx context.Context, driver Driver, s *session, r Request, o Outcome, ran bool) {
	shows, read := s.language == Python && o.shown != "", ran && r.Collect != nil
	if !shows && !read {
		return
	}
	m.open(ctx, driver, s.key, func(ctx context.Context, dir *os.Root) {
		var shown []string
		if shows {
			shown = claimShown(dir, o.shown)
		}
		if read {
			r.Collect(ctx, dir, shown)
		}
	})
}

// keepsFiles reports whether the sessions of a driver have their files here.
func keepsFiles(d Driver) bool {
	_, elsewhere := d.(interface{ keepsState() })
	return !elsewhere
}

// KeepsFiles reports whether code in a language has its working directory here, so that files can be put into it.
func (m *Manager) KeepsFiles(l Language) bool {
	d := m.chosen[l]
	return d != nil && keepsFiles(d)
}

// open has files of the session read or written.
func (m *Manager) open(ctx context.Context, driver Driver, k key, use func(context.Context, *os.Root)) {
	if !keepsFiles(driver) {
		return
	}
	dir, err := os.OpenRoot(m.directoryOf(driver.Name(), k))
	if errors.Is(err, fs.ErrNotExist) {
		return // the org was deleted while the code ran
	}
	if err != nil {
		m.o.Log.Error("the files of a code session cannot be opened", "driver", driver.Name(), "org", k.org, "error", err)
		return
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(ctx, collectTimeout)
	defer cancel()
	use(ctx, dir)
}

// run runs code in a session that is busy for it.
func (m *Manager) run(ctx context.Context, driver Driver, s *session, r Request, limit time.Duration) (Outcome, error) {
	lost, err := m.bring(ctx, driver, s)
	if err != nil {
		return Outcome{}, err
	}
	if s.interpreter == nil {
		dir, existed, err := m.directory(driver.Name(), s.key)
		if err != nil {
			return Outcome{}, &UnavailableError{driver.Name(), err}
		}
		if lost = lost || existed && keepsFiles(driver); existed {
			m.clear(driver, s.key) // of a gateway that was killed
		}
		if s.interpreter, err = driver.Start(ctx, s.language, dir); err != nil {
			if !existed {
				m.removeDirectory(dir)
			}
			if !existed && !lost {
				m.forget(s.org, []string{dir})
			}
			if ctx.Err() != nil {
				return Outcome{}, context.Cause(ctx)
			}
			m.o.Log.Error("a code session could not be started", "driver", driver.Name(), "language", s.language, "org", s.org, "error", err)
			return Outcome{}, &UnavailableError{driver.Name(), err}
		}
		m.o.Log.Debug("a code session has started", "driver", driver.Name(), "language", s.language, "org", s.org, "state_lost", lost)
	}
	if r.Prepare != nil {
		m.open(ctx, driver, s.key, r.Prepare)
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o, err := s.interpreter.Run(limited, r.Code)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	o.StateLost = o.StateLost || lost
	if o.Ended != "" {
		m.o.Log.Debug("a code session has ended", "driver", driver.Name(), "language", s.language, "org", s.org, "reason", o.Ended)
	}
	return o, err
}

// acquire makes a session busy. It waits while the session is busy, and while no other session can be
// evicted for a new one.
func (m *Manager) acquire(ctx context.Context, limit time.Duration, k key) (*session, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		s, evicted, released, err := m.take(k)
		if err != nil {
			return nil, err
		}
		for _, e := range evicted {
			m.o.Log.Debug("a code session was evicted", "language", e.language, "org", e.org)
			e.interpreter.Close()
		}
		if s != nil {
			return s, nil
		}
		select {
		case <-released:
		case <-timer.C:
			return nil, ErrBusy
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take makes a session busy, or returns a channel that is closed when it may be worth another try. The
// caller closes the interpreters of evicted sessions, which are not counted any more.
func (m *Manager) take(k key) (taken *session, evicted []*session, released <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, nil, nil, errors.New("the gateway is closing")
	}
	if s := m.sessions[k]; s != nil {
		if s.busy {
			return nil, nil, m.released, nil
		}
		s.busy = true
		return s, nil, nil, nil
	}
	if of := func(s *session) bool { return s.org == k.org }; m.count(of) >= m.o.MaxSessionsPerOrg {
		e := m.leastRecent(of)
		if e == nil {
			return nil, nil, m.released, nil
		}
		evicted = append(evicted, m.remove(e))
	}
	if all := func(*session) bool { return true }; m.count(all) >= m.o.MaxSessions {
		e := m.leastRecent(all)
		if e == nil {
			return nil, evicted, m.released, nil
		}
		evicted = append(evicted, m.remove(e))
	}
	s := &session{key: k, busy: true}
	m.sessions[k] = s
	return s, evicted, nil, nil
}

// count returns how many sessions there are; called with mu held.
func (m *Manager) count(of func(*session) bool) int {
	n := 0
	for _, s := range m.sessions {
		if of(s) {
			n++
		}
	}
	return n
}

// leastRecent returns the session that is not busy and was used least recently, nil if all are busy;
// called with mu held.
func (m *Manager) leastRecent(of func(*session) bool) *session {
	var least *session
	for _, s := range m.sessions {
		if of(s) && !s.busy && (least == nil || s.used.Before(least.used)) {
			least = s
		}
	}
	return least
}

// remove strikes a session off; called with mu held.
func (m *Manager) remove(s *session) *session {
	delete(m.sessions, s.key)
	return s
}

// release ends the use of a session. alive says that it can be used again. The session can become doomed until its place is free.
func (m *Manager) release(s *session, alive bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if alive = alive && !m.closed && !s.doomed && m.sessions[s.key] == s; !alive && s.interpreter != nil {
		m.unlocked(s.interpreter.Close) // before its place is free
	}
	if s.doomed {
		m.unlocked(func() { m.removeDirectory(m.directoryOf(m.chosen[s.language].Name(), s.key)) })
	}
	s.busy, s.used = false, time.Now()
	if !alive && m.sessions[s.key] == s {
		m.remove(s)
	}
	close(m.released)
	m.released = make(chan struct{})
}

// unlocked does what takes time without mu, which is held before and after.
func (m *Manager) unlocked(do func()) {
	m.mu.Unlock()
	defer m.mu.Lock()
	do()
}

// maintenance is how often idle sessions and old files are looked for.
const maintenance = time.Minute

func (m *Manager) maintain() {
	t := time.NewTicker(maintenance)
	defer t.Stop()
	for {
		select {
		case <-m.stop:
			return
		case now := <-t.C:
			m.endIdle(now)
			m.removeOld(now)
		}
	}
}

// endIdle ends the sessions that were not used for Options.Idle.
func (m *Manager) endIdle(now time.Time) {
	m.endAll(func(s *session) bool { return now.Sub(s.used) >= m.o.Idle })
}

// endAll ends the sessions that are not busy.
func (m *Manager) endAll(of func(*session) bool) {
	m.mu.Lock()
	var ended []*session
	for _, s := range m.sessions {
		if !s.busy && of(s) {
			ended = append(ended, m.remove(s))
		}
	}
	m.mu.Unlock()
	for _, s := range ended {
		s.interpreter.Close()
	}
}

// Sessions returns how many interpreters there are.
func (m *Manager) Sessions() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

// Chosen returns the driver of each language that is configured, as a text such as "python: wasm".
func (m *Manager) Chosen() []string {
	var list []string
	for language, d := range m.chosen {
		list = append(list, fmt.Sprintf("%s: %s", language, d.Name()))
	}
	slices.Sort(list)
	return list
}

// Close ends all sessions. Calls in progress are not waited for: the caller has ended them. Close may
// be called more than once.
func (m *Manager) Close() {
	m.closing.Do(func() {
		close(m.stop)
		m.work.Wait()
		m.mu.Lock()
		m.closed = true
		m.mu.Unlock()
		m.endAll(func(*session) bool { return true })
	})
}
