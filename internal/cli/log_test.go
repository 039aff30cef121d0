package cli

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// writeCounter counts writes.
type writeCounter struct {
	mu sync.Mutex
	b  bytes.Buffer
	n  int
}

// Write implements io.Writer.
func (p *writeCounter) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	return p.b.Write(b)
}

func (p *writeCounter) lines() (lines, writes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.b.String(), "\n"), p.n
}

func TestTheLogIsWrittenManyLinesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out writeCounter
		log, _, flush := newLog(&out, config.Log{Level: "info"})
		want := func(lines, writes int) {
			t.Helper()
			synctest.Wait()
			if l, w := out.lines(); l != lines || w != writes {
				t.Errorf("%d lines with %d writes, want %d and %d", l, w, lines, writes)
			}
		}
		for range 10 {
			log.With("a", 1).WithGroup("g").Info("x")
		}
		log.Debug("not asked for")
		want(0, 0)
		time.Sleep(logDelay)
		want(10, 1)
		log.Info("before")
		log.Warn("now")
		want(12, 2)
		log.Info("late")
		flush()
		want(13, 3)
		flush()
		time.Sleep(time.Second)
		want(13, 3)
		for range 2000 {
			log.Info(strings.Repeat("x", 100))
		}
		synctest.Wait()
		if lines, writes := out.lines(); lines < 1000 || writes > 10 {
			t.Errorf("%d lines with %d writes: the memory is not bounded", lines, writes)
		}
		flush()
	})
}
