//go:build unix

package crash_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

// server is a PostgreSQL server of the test, on 127.0.0.1 alone, which can be stopped.
type server struct {
	*testing.T
	programs string // the directory with initdb and postgres
	data     string
	port     int
	who      *syscall.Credential // nil = the user of the test
	process  *process
}

// newServer starts a server, which ends with the test. The test is skipped where there are no programs for it.
func newServer(t *testing.T) *server {
	t.Helper()
	if os.Getenv(postgrestest.Variable) == "" {
		t.Skip(postgrestest.Variable + " is not set: tests with PostgreSQL do not run")
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		t.Skip("there are no programs of PostgreSQL in /usr/lib/postgresql")
	}
	s := &server{T: t, programs: filepath.Dir(found[len(found)-1]), port: freePort(t)}
	dir, err := os.MkdirTemp("", "turnpike-postgres-") // not that of the test, into which another user may not go
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Geteuid() == 0 { // PostgreSQL refuses to run as root
		if s.who, err = credential("nobody"); err == nil {
			err = os.Chown(dir, int(s.who.Uid), int(s.who.Gid))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	s.data = filepath.Join(dir, "data")
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.programs, "initdb"), "-D", s.data, "-U", "postgres", "-A", "trust", "-E",
		"UTF8", "--locale=C", "--no-sync")
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, baseEnv(), &syscall.SysProcAttr{Credential: s.who}
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, text)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// credential returns the ids of a user.
func credential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// url returns where the server is, or a proxy of it that has another port.
func (s *server) url(port int) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
}

// start starts the server, and returns when it takes connections. Commits that do not wait for the disk (synchronous_commit = off) stay
// in memory for long, so that a crash loses them; nobody waits for them.
func (s *server) start() error {
	s.process = beginAs(s.T, s.who, baseEnv(), filepath.Join(s.programs, "postgres"), "-D", s.data, "-c", "listen_addresses=127.0.0.1",
		"-c", "wal_writer_delay=10s", "-c", fmt.Sprint("port=",
			s.port), "-c", "unix_socket_directories=", "-c", "max_connections=100", "-c", "shared_buffers=64MB")
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(s.process.output.String(), "database system is ready to accept connections") {
			return nil
		}
	}
	return fmt.Errorf("the server of the test does not start:\n%s", s.process.output)
}

// stop stops the server: with SIGINT it ends all connections, with SIGQUIT it ends as in a crash.
func (s *server) stop(how syscall.Signal) error {
	s.process.signal(how)
	select {
	case <-s.process.ended:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the server of the test does not end:\n%s", s.process.output)
	}
}

// commitCutter passes connections on to a server, and cuts some of them in a commit: before the server gets it, or
// when it has answered and the client has not heard of it.
type commitCutter struct {
	listener net.Listener
	to       string
	conns    sync.WaitGroup
	armed    atomic.Int64 // how many commits to cut, half of them before and half of them after

	before, after atomic.Int64 // how many were cut

	watch func(query string) bool // is called before a query is passed on, and cuts the connection instead if it returns true; nil = none is
}

// newCommitCutter starts a proxy of the server at the port, which ends with the test. watch is set before anybody can connect.
func newCommitCutter(t *testing.T, port int, watch func(query string) bool) *commitCutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &commitCutter{listener: l, to: fmt.Sprintf("127.0.0.1:%d", port), watch: watch}
	c.conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			c.conns.Go(func() { c.serve(client) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); c.conns.Wait() })
	return c
}

func (c *commitCutter) port() int { return c.listener.Addr().(*net.TCPAddr).Port }

// serve passes on what a client and the server say, until one of them ends or the connection is cut.
func (c *commitCutter) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer server.Close()
	var mute atomic.Bool
	answered := make(chan struct{}, 1)
	var back sync.WaitGroup
	var watching sync.Mutex // the client hears nothing while watch is called, also not that the server is gone
	back.Go(func() {
		defer client.Close()
		defer watching.Unlock()
		defer watching.Lock()
		part := make([]byte, 32<<10)
		for {
			n, err := server.Read(part)
			if err != nil {
				return
			}
			if mute.Load() {
				select {
				case answered <- struct{}{}:
				default:
				}
				continue
			}
			if _, err := client.Write(part[:n]); err != nil {
				return
			}
		}
	})
	c.forward(client, server, &watching, func() {
		select {
		case <-answered:
		case <-time.After(time.Second):
		}
	}, &mute)
	_ = server.Close()
	back.Wait()
}

// forward reads messages of the client and passes them on, until it ends or a commit is cut. heard waits for the answer to one.
func (c *commitCutter) forward(client, server net.Conn, watching *sync.Mutex, heard func(), mute *atomic.Bool) {
	prepared := map[string]string{} // queries by the names of statements
	first := true
	for {
		head := make([]byte, 5)
		if first {
			head = head[:4]
		}
		if _, err := io.ReadFull(client, head); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[len(head)-4:])-4)
		if _, err := io.ReadFull(client, body); err != nil {
			return
		}
		var kind byte
		if !first {
			kind = head[0]
		}
		first = false
		query := queryOf(kind, string(body), prepared)
		if query != "" && c.watch != nil {
			watching.Lock()
			cut := c.watch(query)
			watching.Unlock()
			if cut {
				return
			}
		}
		if strings.EqualFold(query, "COMMIT") && c.armed.Load() > 0 {
			if n := c.armed.Add(-1); n%2 == 0 {
				c.before.Add(1)
				return
			}
			mute.Store(true)
		}
		if _, err := server.Write(slices.Concat(head, body)); err != nil {
			return
		}
		if mute.Load() && (kind == 'Q' || kind == 'S') {
			heard()
			c.after.Add(1)
			return
		}
	}
}

// queryOf returns the query that a message of a client begins to execute; "" = none.
func queryOf(kind byte, body string, prepared map[string]string) string {
	switch kind {
	case 'Q':
		return strings.TrimRight(body, "\x00")
	case 'P':
		name, rest, _ := strings.Cut(body, "\x00")
		prepared[name], _, _ = strings.Cut(rest, "\x00")
	case 'B':
		_, rest, _ := strings.Cut(body, "\x00")
		name, _, _ := strings.Cut(rest, "\x00")
		return prepared[name]
	}
	return ""
}
