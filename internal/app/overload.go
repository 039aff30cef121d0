package app

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// slowStore is how long what is to be stored may wait before no more work is
// taken.
const slowStore = time.Second

// overload says why no more work of an org can be taken at the moment, in words for its
// caller; "" = it can. An org whose large writes make the store slow is refused before others.
type overload struct {
	lag    func(org string) time.Duration // of the store, as far as the org causes it
	slow   time.Duration                  // see Options.SlowStore
	memory *memory
}

func (o overload) why(org string) string {
	switch {
	case o.lag(org) > o.slow:
		return "its store is slow"
	case o.memory.isFull():
		return "its memory is nearly full"
	}
	return ""
}

// memory knows whether what is in use comes near to what the process may have.
// It looks when it is asked, ten times in a second at most.
type memory struct {
	most uint64 // bytes; 0 = not known, and never full
	used func() uint64

	next atomic.Pointer[time.Time] // when to look again; nil = now. A time.Now, which no step of the wall clock moves
	full atomic.Bool
}

// lookEvery is how long what was seen counts.
const lookEvery = 100 * time.Millisecond

// isFull reports whether it is nearly full.
func (m *memory) isFull() bool {
	if m.most == 0 {
		return false
	}
	now, next := time.Now(), m.next.Load()
	if next != nil && now.Before(*next) {
		return m.full.Load()
	}
	if again := now.Add(lookEvery); m.next.CompareAndSwap(next, &again) {
		m.full.Store(m.used() > m.most)
	}
	return m.full.Load()
}

// newMemory returns the memory of this process. Under GOMEMLIMIT the garbage
// collector keeps to the limit, and nine tenths of it may be in use. Under the
// limit of a container alone it does not: what is in use may double before it
// collects, so it is half of that.
func newMemory(cgroup string) *memory {
	m := &memory{used: inUse}
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		m.most = uint64(limit) / 10 * 9 //nolint:gosec // it is not negative
	} else if limit, ok := containerLimit(cgroup); ok {
		m.most = limit / 10 * 9 / 2
	}
	return m
}

// newLimiter returns the limiter of what callers make the process retain. Without
// a bound in the configuration it is half of what may be in use: the rest is for
// stacks, connections and garbage.
func newLimiter(c *config.Config, m *memory) *memlimit.Limiter {
	process := int64(c.MaxRetainedMiB) << 20
	if process == 0 {
		process = int64(m.most / 2) //nolint:gosec // a half fits
	}
	return memlimit.New(memlimit.Options{Process: process, Run: int64(c.MaxRetainedRunMiB) << 20})
}

// containerLimit returns what the container may use, in bytes; false if there is
// no limit or none that can be read. The files are those of Linux's control
// groups, of version 2 and of version 1, whose largest number is no limit.
func containerLimit(cgroup string) (uint64, bool) {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(filepath.Join(cgroup, name))
		if err != nil {
			continue
		}
		limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
		return limit, err == nil && limit < math.MaxInt64/2
	}
	return 0, false
}

// inUse returns the bytes that cannot be given back: what the last collection
// has found in use, and the stacks.
func inUse() uint64 {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64()
}
