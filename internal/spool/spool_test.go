package spool

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

func newSpool(t *testing.T, most, all int64) *Spool {
	t.Helper()
	s, err := New(filepath.Join(t.TempDir(), "spool"), most, all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t *testing.T, open func() io.ReadCloser) string {
	t.Helper()
	r := open()
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// P63
func TestABodyIsReadAsOftenAsItIsNeeded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	memory := memlimit.New(memlimit.Options{})
	for _, size := range []int{0, 1, 5000, MaxMemory, MaxMemory + 1, 3*MaxMemory + 17} {
		s := newSpool(t, 8<<20, 64<<20)
		account := memory.Open("o")
		b := s.Body("o", account)
		want := strings.Repeat("x", size)
		for rest := want; rest != ""; {
			n := min(1+random.IntN(200_000), len(rest))
			if _, err := b.Write([]byte(rest[:n])); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if files, _ := os.ReadDir(s.dir); len(files) > 0 {
			t.Errorf("%d bytes: a file of a body in use is called %s", size, files[0].Name())
		}
		inFile := size > MaxMemory
		if held := account.Used(); inFile && held != 0 || held > MaxMemory || !inFile && held < int64(size) {
			t.Errorf("%d bytes: %d bytes of memory are charged", size, held)
		}
		if disk := s.Held(); inFile != (disk >= int64(size) && disk > 0) {
			t.Errorf("%d bytes: %d bytes of files are counted", size, disk)
		}
		open, length := b.With()
		for range 2 {
			if got := read(t, open); got != want || length != int64(size) {
				t.Errorf("%d bytes: read %d, said to be %d", size, len(got), length)
			}
		}
		if size > 1000 {
			open, length = b.With(Cut{10, 20, []byte("longer than that")}, Cut{int64(size) - 5, int64(size), nil})
			if got := read(t, open); got != want[:10]+"longer than that"+want[20:size-5] || length != int64(len(got)) {
				t.Errorf("%d bytes: replaced %d, said to be %d", size, len(got), length)
			}
		}
		if err := errors.Join(b.Close(), b.Close()); err != nil || account.Used() != 0 || s.Held() != 0 {
			t.Errorf("%d bytes: closed: %v, %d bytes of memory and %d of files are counted", size, err, account.Used(), s.Held())
		}
		account.Close()
	}
}

func TestTheFileOfABodyIsItsOwnersOnly(t *testing.T) {
	s := newSpool(t, 8<<20, 64<<20)
	b := s.Body("o", nil)
	defer b.Close()
	if _, err := b.Write(make([]byte, 2*MaxMemory)); err != nil {
		t.Fatal(err)
	}
	info, err := b.file.Stat()
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if dir, err := os.Stat(s.dir); err != nil || dir.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", dir.Mode(), err)
	}
}

func TestABodyOverALimitIsRefused(t *testing.T) {
	s := newSpool(t, 8<<20, 12<<20)
	big := make([]byte, 2<<20)
	var bodies []*Body
	fill := func(org string, n int) (err error) {
		b := s.Body(org, nil)
		bodies = append(bodies, b)
		for range n {
			if _, err = b.Write(big); err != nil {
				return err
			}
		}
		return nil
	}
	if err := fill("a", 5); fault.From(err).Reason != "request_too_large" || fault.From(err).Code != fault.TooLarge {
		t.Errorf("a body of 10 MiB: %v", err)
	}
	if err := fill("a", 1); fault.From(err).Reason != "org_spool_exceeded" || fault.From(err).RetryAfter == 0 {
		t.Errorf("an org with more than two thirds: %v", err)
	}
	if err := fill("b", 1); err != nil {
		t.Errorf("another org: %v", err)
	}
	if err := errors.Join(fill("c", 0), fill("d", 2)); fault.From(err).Code != fault.Limited && fault.From(err).Code != fault.Unavailable {
		t.Errorf("more than all may have: %v", err)
	}
	for _, b := range bodies {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.Held() != 0 {
		t.Errorf("%d bytes are counted at the end", s.Held())
	}
	if err := fill("a", 4); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	_ = bodies[len(bodies)-1].Close()
}

func TestMemoryThatIsRefusedRefusesTheBody(t *testing.T) {
	account := memlimit.New(memlimit.Options{Run: 100 << 10}).Open("o")
	defer account.Close()
	b := newSpool(t, 8<<20, 64<<20).Body("o", account)
	defer b.Close()
	_, err := io.Copy(b, bytes.NewReader(make([]byte, 1<<20)))
	if fault.From(err).Reason != "run_memory_exceeded" {
		t.Error(err)
	}
}

func TestAFileThatCannotBeWrittenRefusesTheBody(t *testing.T) {
	s := newSpool(t, 8<<20, 64<<20)
	if err := os.Remove(s.dir); err != nil {
		t.Fatal(err)
	}
	b := s.Body("o", nil)
	defer b.Close()
	if _, err := b.Write(make([]byte, 2*MaxMemory)); fault.From(err).Reason != "spool_unavailable" {
		t.Error(err)
	}
}

// What a crash has left is removed at the start, and nothing else.
func TestNewRemovesWhatACrashHasLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"body-123", "body-abc", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := New(dir, 1, 1); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 || files[0].Name() != "other" {
		t.Errorf("%v %v", files, err)
	}
}
