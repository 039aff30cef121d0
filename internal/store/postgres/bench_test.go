package postgres_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// The figures of docs/postgresql.md. "stores" are replicas on one schema, here in one process, so that all of them and the server
// share the machine. 16 writers at a time are spread over the stores and the orgs.
const benchWriters = 16

// engines are what the benchmarks compare: SQLite, and PostgreSQL with some stores on one schema.
func engines(b *testing.B, orgs int, do func(b *testing.B, stores []*database.Store, orgs int)) {
	b.Helper()
	b.Run(fmt.Sprintf("sqlite/orgs=%d", orgs), func(b *testing.B) {
		s, err := database.Open(b.Context(), database.Options{Path: filepath.Join(b.TempDir(), "turnpike.db")})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		do(b, []*database.Store{s}, orgs)
	})
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("postgres/stores=%d/orgs=%d", n, orgs), func(b *testing.B) {
			o := postgrestest.New(b)
			o.Pool = 16
			stores := make([]*database.Store, n)
			for i := range stores {
				s, err := postgres.Open(b.Context(), o, database.ServerOptions{})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = s.Close() })
				s.Bell.Quiet(n == 1) // as a replica without others does
				stores[i] = s.Store
			}
			do(b, stores, orgs)
		})
	}
}

// writing has writers at a time call do until b.N calls were made, and reports the rate.
func writing(b *testing.B, unit string, do func(writer, n int) error) {
	b.Helper()
	var next atomic.Int64
	b.ResetTimer()
	var group errgroup.Group
	for writer := range benchWriters {
		group.Go(func() error {
			for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
				if err := do(writer, int(n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), unit+"/s")
}

// Synced appends of one fact and a row of 1.5 KiB each.
func BenchmarkAppend(b *testing.B) {
	for _, orgs := range []int{8, 1} {
		engines(b, orgs, func(b *testing.B, stores []*database.Store, orgs int) {
			leases, seqs := make([]journal.Lease, benchWriters), make([]int64, benchWriters)
			for i := range leases {
				leases[i] = journal.Lease{Org: fmt.Sprint("org ", i%orgs), RunID: fmt.Sprint("run ", i), Epoch: 1}
				accepted := loop.Accepted{Org: leases[i].Org, RunID: leases[i].RunID}
				if err := appended(b.Context(), stores[i%len(stores)], leases[i], 0, true, "", accepted); err != nil {
					b.Fatal(err)
				}
				seqs[i] = 1
			}
			body := strings.Repeat("x", 1536)
			writing(b, "appends", func(w, _ int) error {
				seq := seqs[w] + 1
				ref := fmt.Sprint(seq)
				batch := journal.Batch{
					Sync: true, Rows: []journal.Row{{Ref: ref, Value: body}},
					Facts: []loop.Fact{{Seq: seq, Epoch: 1, At: seq, Version: 1, Body: loop.InputAdded{ItemsRef: ref, By: loop.ByClient}}},
				}
				err := stores[w%len(stores)].Append(b.Context(), leases[w], seq-1, batch)
				seqs[w] = seq
				return err
			})
		})
	}
}

// Runs with two rounds and one read call, of which the beginning and the end are synced.
func BenchmarkLightRuns(b *testing.B) { benchmarkRuns(b, loop.Light) }

// The same runs with each step on disk before the next one.
func BenchmarkDurableRuns(b *testing.B) { benchmarkRuns(b, loop.Durable) }

func benchmarkRuns(b *testing.B, grade loop.Grade) {
	b.Helper()
	engines(b, 8, func(b *testing.B, stores []*database.Store, orgs int) {
		writing(b, "runs", func(w, n int) error {
			lease := journal.Lease{Org: fmt.Sprint("org ", w%orgs), RunID: fmt.Sprint("run ", n), Epoch: 1}
			return wholeRun(b.Context(), stores[w%len(stores)], lease, grade)
		})
	})
}

// wholeRun appends all of a run with two rounds and one call: 11 facts in 10 batches.
func wholeRun(ctx context.Context, s *database.Store, lease journal.Lease, grade loop.Grade) error {
	usage := model.Usage{Input: 100, Output: 20, Total: 120}
	accepted := loop.Accepted{Org: lease.Org, RunID: lease.RunID, Principal: "p", Surface: "chat", Model: "m"}
	accepted.Policy.Grade = grade
	after := int64(0)
	for i, step := range []struct {
		ref    string
		bodies []loop.Body
	}{
		{"input", []loop.Body{accepted, loop.InputAdded{ItemsRef: "input", By: loop.ByClient}}},
		{"", []loop.Body{loop.Catalogued{}}},
		{"", []loop.Body{loop.TurnStarted{Attempt: 1, Purpose: loop.PurposeTurn}}},
		{"turn:0", []loop.Body{loop.Turn{Purpose: loop.PurposeTurn, ItemsRef: "turn:0", Usage: usage}}},
		{"args", []loop.Body{loop.CallPrepared{Key: "0.0"}}},
		{"", []loop.Body{loop.CallStarted{Key: "0.0", Attempt: 1}}},
		{"result", []loop.Body{loop.CallDone{Key: "0.0", Attempt: 1, Outcome: loop.OK, ResultRef: "result"}}},
		{"", []loop.Body{loop.TurnStarted{Round: 1, Attempt: 1, Purpose: loop.PurposeTurn}}},
		{"turn:1", []loop.Body{loop.Turn{Round: 1, Purpose: loop.PurposeTurn, ItemsRef: "turn:1", Usage: usage}}},
		{"", []loop.Body{loop.Finished{Reason: event.Complete}}},
	} {
		sync := grade == loop.Durable || i == 0 || i == 9
		if err := appended(ctx, s, lease, after, sync, step.ref, step.bodies...); err != nil {
			return err
		}
		after += int64(len(step.bodies))
	}
	return nil
}

func appended(ctx context.Context, s *database.Store, lease journal.Lease, after int64, sync bool, ref string, bodies ...loop.Body) error {
	batch := journal.Batch{Sync: sync}
	for i, body := range bodies {
		batch.Facts = append(batch.Facts, loop.Fact{Seq: after + 1 + int64(i), Epoch: lease.Epoch, At: after, Version: 1, Body: body})
	}
	if ref != "" {
		batch.Rows = []journal.Row{{Ref: ref, Value: []item.Item{item.NewText(item.Assistant, strings.Repeat("word ", 60))}}}
	}
	return s.Append(ctx, lease, after, batch)
}

// Queued runs of 40 orgs, which 4 owners claim, up to 64 at a time.
func BenchmarkClaim(b *testing.B) {
	const claimers = 4
	engines(b, 40, func(b *testing.B, stores []*database.Store, orgs int) {
		for n := range b.N {
			lease := journal.Lease{Org: fmt.Sprint("org ", n%orgs), RunID: fmt.Sprint("run ", n)}
			accepted := loop.Accepted{Org: lease.Org, RunID: lease.RunID, Queued: true, Policy: loop.Policy{Grade: loop.Durable}}
			batch := journal.Batch{Opening: &journal.Opening{Queue: b.N}, Facts: []loop.Fact{{Seq: 1, At: 1, Version: 1, Body: accepted}}}
			if err := stores[0].Append(b.Context(), lease, 0, batch); err != nil {
				b.Fatal(err)
			}
		}
		var claimed atomic.Int64
		b.ResetTimer()
		var group errgroup.Group
		for i := range claimers {
			group.Go(func() error {
				for claimed.Load() < int64(b.N) {
					got, err := stores[i%len(stores)].Claim(b.Context(), fmt.Sprint("owner ", i), 64)
					if err != nil {
						return err
					}
					claimed.Add(int64(len(got)))
				}
				return nil
			})
		}
		if err := group.Wait(); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "claims/s")
	})
}
