package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// closes counts the interpreters that were closed.
type closes struct {
	Interpreter
	n *int
}

func (c closes) Close() { *c.n++ }

func TestIdleSessionsEnd(t *testing.T) {
	m, err := New(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	now, n := time.Now(), 0
	for name, used := range map[string]time.Time{"old": now.Add(-time.Hour), "new": now.Add(-time.Hour + time.Second)} {
		k := key{"acme", name, Python}
		m.sessions[k] = &session{key: k, used: used, interpreter: closes{nil, &n}}
	}
	busy := key{"acme", "busy", Python}
	m.sessions[busy] = &session{key: busy, busy: true}
	m.endIdle(now)
	if n != 1 || m.Sessions() != 2 || m.sessions[key{"acme", "old", Python}] != nil {
		t.Errorf("%d closed, %d left", n, m.Sessions())
	}
	delete(m.sessions, busy)
}

func TestOldFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	m := &Manager{o: Options{Dir: dir}}
	now := time.Now()
	used := func(name string, age time.Duration) string {
		t.Helper()
		path, existed, err := m.directory("wasm", key{"acme", name, Python})
		if err != nil || existed {
			t.Fatal(existed, err)
		}
		if err := os.WriteFile(filepath.Join(path, "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	young, old, ancient := used("young", keepFiles-time.Minute), used("old", keepFiles+time.Minute), used("ancient", keepDirectory+time.Minute)
	m.removeOld(now)
	m.removeOld(now) // what is emptied keeps its time
	for path, want := range map[string]string{young: "[f] true", old: "[] true", ancient: "[] false"} {
		entries, err := os.ReadDir(path)
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if got := fmt.Sprint(names, err == nil); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	_ = os.Chtimes(old, now.Add(-2*keepDirectory), now.Add(-2*keepDirectory))
	_ = os.Chtimes(young, now.Add(-2*keepDirectory), now.Add(-2*keepDirectory))
	if m.removeOld(now); len(usages(filepath.Dir(old))) != 0 {
		t.Error("directories are left")
	}
	if _, err := os.Stat(filepath.Dir(old)); !os.IsNotExist(err) {
		t.Errorf("the directory of an org without sessions: %v", err)
	}
}

func TestAnOrgHasAsManyDirectoriesAsItMayHave(t *testing.T) {
	m := &Manager{o: Options{Dir: t.TempDir()}}
	at := time.Now().Add(-time.Hour)
	var first string
	for i := range maxDirectories + 5 {
		dir, _, err := m.directory("wasm", key{"acme", fmt.Sprint(i), Python})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = dir
		}
		_ = os.Chtimes(dir, at, at.Add(time.Duration(i)*time.Second))
	}
	entries, err := os.ReadDir(filepath.Dir(first))
	if err != nil || len(entries) != maxDirectories {
		t.Error(len(entries), err)
	}
	if _, err := os.Stat(first); !os.IsNotExist(err) {
		t.Errorf("the oldest one: %v", err)
	}
}

// Output is the same however the reads cut it.
func TestOutputIsCutAtTheMark(t *testing.T) {
	const mark = "\x00MARK\x00"
	half := strings.Repeat("x", maxOutput/2)
	for _, c := range []struct {
		text          string
		want, reply   string
		dropped       int64
		complete      bool
		withoutAnswer bool
	}{
		{"out" + mark + `{"exit":0}` + "\nrest", "out", `{"exit":0}`, 0, true, false},
		{mark + "\n", "", "", 0, true, false},
		{"a\x00MAR" + mark + "x\n", "a\x00MAR", "x", 0, true, false},
		{"a\x00MAR", "a\x00MAR", "", 0, false, false},
		{strings.Repeat("x", maxOutput) + mark + "\n", strings.Repeat("x", maxOutput), "", 0, true, false},
		{half + "yz" + half + mark + "\n", half + "\n[2 bytes were dropped here]\n" + half, "", 2, true, false},
		{
			half + half + half + half + "z" + mark, half + "\n[524289 bytes were dropped here]\n" + half[1:] + "z", "", maxOutput + 1, true, true,
		},
		{"a" + mark + strings.Repeat("r", maxReply+10) + "\n", "a", strings.Repeat("r", maxReply), 0, true, false},
		{"a" + mark + "b", "a", "", 0, true, true},
	} {
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(c.text), "bytes": iotest.OneByteReader(strings.NewReader(c.text))} {
			pr, pw := io.Pipe()
			x := newCapture(pr, !c.withoutAnswer)
			marked := x.begin(mark)
			_, _ = io.Copy(pw, r)
			_ = pw.Close()
			<-x.done
			complete := false
			select {
			case <-marked:
				complete = true
			default:
			}
			text, dropped, reply := x.end()
			if text != c.want || dropped != c.dropped || !bytes.Equal(reply, []byte(c.reply)) || complete != c.complete {
				t.Errorf("%s, %.20q: %.40q %d %.40q %v", name, c.text, text, dropped, reply, complete)
			}
		}
	}
}

func TestOutputBetweenCallsIsDropped(t *testing.T) {
	pr, pw := io.Pipe()
	c := newCapture(pr, false)
	_, _ = io.WriteString(pw, "nobody has asked")
	_, _ = pw.Write(nil) // the reader is back, so it has added that
	marked := c.begin("MARK")
	_, _ = io.WriteString(pw, "asked MARK later")
	<-marked
	_ = pw.Close()
	<-c.done
	if text, dropped, _ := c.end(); text != "asked " || dropped != 0 {
		t.Errorf("%q, %d", text, dropped)
	}
}

// named is a driver that is not used but for its name.
type named struct{ Driver }

func (named) Name() string { return Wasm }

// does does something when it is closed.
type does struct {
	Interpreter
	when func()
}

func (d does) Close() { d.when() }

// A session that is deleted while its interpreter ends leaves nothing behind.
func TestASessionThatIsDeletedWhileItEnds(t *testing.T) {
	k := key{"acme", "s", Python}
	m := &Manager{o: Options{Dir: t.TempDir()}, chosen: map[Language]Driver{Python: named{}}, sessions: map[key]*session{}, released: make(chan struct{})}
	dir, _, err := m.directory(Wasm, k)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{key: k, busy: true, interpreter: does{nil, func() { m.RemoveSession("acme", "s") }}}
	m.sessions[k] = s
	m.release(s, false)
	if _, err := os.Stat(dir); !os.IsNotExist(err) || len(m.sessions) != 0 {
		t.Errorf("%v, %d sessions", err, len(m.sessions))
	}
}

// What closes its directories to the user that the gateway is, is removed all the same.
func TestClosedDirectoriesAreRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "session")
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	for _, path := range []string{filepath.Join(dir, "a", "b", "f"), outside} {
		if err := os.WriteFile(path, []byte("x"), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "a", "link")); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{"a/b", "a", "."} {
		if err := os.Chmod(filepath.Join(dir, path), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeAll(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Error(err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode() != 0o400 {
		t.Errorf("%v, %v", info, err)
	}
}
