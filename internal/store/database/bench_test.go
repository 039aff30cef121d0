package database

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Synced appends of one fact and a row of 1.5 KiB each.
func BenchmarkSyncedAppend(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := openStore(b, Options{Path: filepath.Join(b.TempDir(), "turnpike.db")})
			for i := range writers {
				beginRun(b, s, "a", fmt.Sprint(i))
			}
			var left atomic.Int64
			left.Store(int64(b.N))
			body := strings.Repeat("x", 1536)
			b.ResetTimer()
			var group errgroup.Group
			for i := range writers {
				lease := journal.Lease{Org: "a", RunID: fmt.Sprint(i), Epoch: 1}
				group.Go(func() error {
					for seq := int64(2); left.Add(-1) >= 0; seq++ {
						ref := fmt.Sprint(seq)
						batch := journal.Batch{
							Sync: true, Rows: []journal.Row{{Ref: ref, Value: body}},
							Facts: []loop.Fact{{Seq: seq, Epoch: 1, At: seq, Version: 1, Body: loop.InputAdded{ItemsRef: ref, By: loop.ByClient}}},
						}
						if err := s.Append(b.Context(), lease, seq-1, batch); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
		})
	}
}

// The writes of a light run with two rounds and one read call.
func BenchmarkLightRun(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("at_a_time=%d", writers), func(b *testing.B) {
			s := openStore(b, Options{Path: filepath.Join(b.TempDir(), "turnpike.db")})
			var next atomic.Int64
			b.ResetTimer()
			var group errgroup.Group
			for range writers {
				group.Go(func() error {
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						if err := lightRun(b, s, fmt.Sprint("run ", n)); err != nil {
							return err
						}
					}
					return nil
				})
			}
			if err := group.Wait(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
		})
	}
}

func lightRun(b *testing.B, s *Store, runID string) error {
	lease := journal.Lease{Org: "a", RunID: runID, Epoch: 1}
	text := []item.Item{item.NewText(item.Assistant, strings.Repeat("word ", 60))}
	usage := model.Usage{Input: 100, Output: 20, Total: 120}
	steps := []struct {
		sync   bool
		ref    string
		bodies []loop.Body
	}{
		{true, "input", []loop.Body{loop.Accepted{Org: "a", RunID: runID, Principal: "p", Surface: "chat", Policy: loop.Policy{Grade: loop.Light}, Model: "m"}, loop.InputAdded{ItemsRef: "input", By: loop.ByClient}}},
		{false, "", []loop.Body{loop.Catalogued{}}},
		{false, "", []loop.Body{loop.TurnStarted{Attempt: 1, Purpose: loop.PurposeTurn}}},
		{false, "turn:0", []loop.Body{loop.Turn{Purpose: loop.PurposeTurn, ItemsRef: "turn:0", Usage: usage}}},
		{false, "args", []loop.Body{loop.CallPrepared{Key: "0.0"}}},
		{false, "", []loop.Body{loop.CallStarted{Key: "0.0", Attempt: 1}}},
		{false, "result", []loop.Body{loop.CallDone{Key: "0.0", Attempt: 1, Outcome: loop.OK, ResultRef: "result"}}},
		{false, "", []loop.Body{loop.TurnStarted{Round: 1, Attempt: 1, Purpose: loop.PurposeTurn}}},
		{false, "turn:1", []loop.Body{loop.Turn{Round: 1, Purpose: loop.PurposeTurn, ItemsRef: "turn:1", Usage: usage}}},
		{true, "", []loop.Body{loop.Finished{Reason: event.Complete}}},
	}
	after := int64(0)
	for _, step := range steps {
		batch := journal.Batch{Sync: step.sync}
		for i, body := range step.bodies {
			batch.Facts = append(batch.Facts, loop.Fact{Seq: after + 1 + int64(i), Epoch: 1, At: after, Version: 1, Body: body})
		}
		if step.ref != "" {
			batch.Rows = []journal.Row{{Ref: step.ref, Value: text}}
		}
		if err := s.Append(b.Context(), lease, after, batch); err != nil {
			return err
		}
		after += int64(len(step.bodies))
	}
	return nil
}

// The audit rows of relays, 44 per commit, as at 4,400 requests a second. The metric is
// the CPU time of the process.
func BenchmarkRecord(b *testing.B) {
	const group = 44
	s := openStore(b, Options{Path: filepath.Join(b.TempDir(), "turnpike.db")})
	ttft := 1.234
	b.ReportAllocs()
	b.ResetTimer()
	before := processCPU()
	for i := range b.N {
		e := audit.Entry{
			Kind: audit.KindRequest, At: int64(1_700_000_000_000 + i/5), Principal: "key_abcdefghijklmnopqrstuvwx", RequestID: id.NewOrdered("req_"),
			Body: audit.Request{
				Surface: audit.SurfaceRelay, Via: "chat", Provider: "up", Model: "bench-model", Target: "bench-model",
				Attempts: 1, Status: audit.OK, HTTPStatus: 200, Bytes: 345, LatencyMS: 1.567, TTFTMS: &ttft,
			},
		}
		if err := s.Record(b.Context(), "default", e); err != nil {
			b.Fatal(err)
		}
		if i%group == group-1 {
			if err := s.recorder.flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			last := &write{do: func(*tx) error { return nil }, awaited: true, deferSync: true}
			if err := errors.Join(s.writer.submit(b.Context(), last), last.wait(b.Context())); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64((processCPU()-before).Nanoseconds())/float64(b.N)/1e3, "cpu-us/row")
}

func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
