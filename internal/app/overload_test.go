package app

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// No work is taken while the store or the memory cannot bear more, and it
// is again when they can. // R11
func TestTheStoreAndTheMemoryCloseTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lag, used := time.Duration(0), uint64(0)
		looked := 0
		o := overload{func(string) time.Duration { return lag }, slowStore, &memory{most: 100, used: func() uint64 { looked++; return used }}}
		for _, c := range []struct {
			lag  time.Duration
			used uint64
			want string
		}{
			{0, 0, ""},
			{time.Second, 100, ""},
			{time.Second + 1, 0, "its store is slow"},
			{0, 101, "its memory is nearly full"},
			{time.Hour, 101, "its store is slow"},
			{0, 100, ""},
		} {
			time.Sleep(lookEvery)
			lag, used = c.lag, c.used
			if got := o.why("a"); got != c.want {
				t.Errorf("lag %v, %d bytes in use: %q, want %q", c.lag, c.used, got, c.want)
			}
		}
		before := looked
		time.Sleep(lookEvery)
		for range 100 {
			o.why("a")
		}
		if looked != before+1 {
			t.Errorf("it looked %d times at once", looked-before)
		}
	})
}

func TestTheLimitOfTheMemoryIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		file, text string
		want       uint64
		known      bool
	}{
		"version 2":              {"memory.max", "1073741824\n", 1 << 30, true},
		"version 2 without one":  {"memory.max", "max\n", 0, false},
		"version 1":              {"memory/memory.limit_in_bytes", "1073741824\n", 1 << 30, true},
		"version 1 without one":  {"memory/memory.limit_in_bytes", "9223372036854771712\n", 0, false},
		"no container":           {"other", "", 0, false},
		"what nobody can read":   {"memory.max", "a lot", 0, false},
		"a limit below zero":     {"memory.max", "-1", 0, false},
		"an empty file is none":  {"memory.max", "", 0, false},
		"a limit without an end": {"memory.max", "1073741824", 1 << 30, true},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, c.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, known := containerLimit(dir); known != c.known || known && got != c.want {
			t.Errorf("%s: %d, %v; want %d, %v", name, got, known, c.want, c.known)
		}
		if debug.SetMemoryLimit(-1) == math.MaxInt64 {
			if m := newMemory(dir); m.most != c.want/10*9/2 && c.known || m.isFull() {
				t.Errorf("%s: at most %d bytes may be in use", name, m.most)
			}
		}
	}
	if n := inUse(); n == 0 || n > 1<<40 {
		t.Errorf("%d bytes are in use", n)
	}
}
