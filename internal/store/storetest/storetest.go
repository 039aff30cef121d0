// Package storetest is the conformance suite of the stores. Every implementation of
// the ports must pass all rules. A failed case logs the rule and its reason.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, storetest.Maker{Open: open})
//	}
package storetest

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/toolcache"
)

// Store is one implementation of the ports. One value may implement several.
type Store struct {
	Sessions      agent.Sessions
	Journal       journal.Journal
	Archive       journal.Archive
	Slices        journal.Slices
	Leases        journal.Leases
	Conversations journal.Conversations
	LaterDeleter  journal.LaterDeleter
	Sweep         func(t *testing.T) // deletes the runs that are to be forgotten

	// The ports below are nil if Maker.RunsOnly is set.
	Orgs         org.Store
	Agents       agent.Store
	Results      toolcache.Store
	Audit        AuditLog
	Webhooks     journal.Webhooks
	Outbox       journal.Outbox
	HookMessages journal.HookMessages
	Files        file.Store
}

// Maker creates stores for the cases. Open and Capped are required.
type Maker struct {
	// RunsOnly says that the implementation has runs, conversations and sessions only: no orgs, and nothing that
	// belongs to one. The cases of the other ports are left out.
	RunsOnly bool

	// Shared says that several processes can have a store: nothing ends when one opens it, and what was claimed ends with
	// its time.
	Shared bool

	// Open returns an empty store with these clocks. The implementation closes it
	// when the test ends.
	Open func(t *testing.T, c Clocks) Store

	// Capped is Open with caps.
	Capped func(t *testing.T, c Clocks, caps org.Caps) Store

	// Reopen closes the store and opens its data again. Nil means that the
	// implementation does not persist anything.
	Reopen func(t *testing.T, s Store) Store

	// Crash opens a copy of what is on disk now, as the next process would find it
	// after a power failure. Nil has the meaning of a nil Reopen.
	Crash func(t *testing.T, s Store) Store
}

// Clocks are the clocks of a store.
type Clocks struct {
	Wall   func() time.Time // wall clock; it can jump
	Leases func() time.Time // clock of leases; it never jumps
}

// Run tests an implementation against all rules of the ports that it has. The persistence rules run only if
// m.Reopen is set.
func Run(t *testing.T, m Maker) {
	cases := slices.Concat(
		journalCases(), archiveCases(), conversationCases(), isolationCases(), slotCases(), queueCases(), submitCases(), leaseCases(), asideCases(),
		budgetCases(), sliceCases(), auditCases(), runCapCases(), forgetCases(), approvalCases(), sessionCases(), branchCases(),
	)
	if !m.RunsOnly {
		cases = slices.Concat(cases,
			orgCases(), manyOrgCases(), keyCases(), serverCases(), serverContentCases(), secretCases(), sessionRevokeCases(),
			auditLogCases(), usageCases(), capCases(), recordedCases(), resultCases(), resultBoundCases(), webhookCases(), outboxCases(),
			hookMessageCases(), agentCases(), sessionOwnerCases(), toolCases(), fileCases(),
		)
	}
	for _, c := range cases {
		c.test(t, m)
	}
	if m.Reopen == nil {
		return
	}
	for _, c := range slices.Concat(persistenceCases(), usagePersistenceCases(), promiseCases(), outboxPersistenceCases(), hookMessagePersistenceCases(), agentPersistenceCases(), toolPersistenceCases(), filePersistenceCases(), branchPersistenceCases()) {
		c.test(t, m)
	}
}

// rule is one case: its name, the reason for it, and the test.
type rule struct {
	name string
	why  string
	run  func(*testBench)
}

func (r rule) test(t *testing.T, m Maker) {
	t.Run(r.name, func(t *testing.T) {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the reason for this rule: %s", r.why)
			}
		})
		b := &testBench{T: t, maker: m}
		b.clock.Store(1_700_000_000_000)
		b.leaseClock.Store(1_600_000_000_000)
		b.Store = m.Open(t, b.clocks())
		r.run(b)
	})
}

// testBench is the test context of a case: a store, its clocks and helpers.
type testBench struct {
	*testing.T
	Store
	maker Maker
	clock atomic.Int64 // wall clock, Unix milliseconds

	leaseClock atomic.Int64 // clock of leases, Unix milliseconds
}

func (b *testBench) clocks() Clocks {
	return Clocks{Wall: b.now, Leases: func() time.Time { return time.UnixMilli(b.leaseClock.Load()).UTC() }}
}

func (b *testBench) now() time.Time { return time.UnixMilli(b.clock.Load()).UTC() }

// advance moves both clocks.
func (b *testBench) advance(d time.Duration) {
	b.clock.Add(d.Milliseconds())
	b.leaseClock.Add(d.Milliseconds())
}

// step moves the wall clock only, as if it had been set.
func (b *testBench) step(d time.Duration) { b.clock.Add(d.Milliseconds()) }

// createOrg creates an org, in a store that knows orgs.
func (b *testBench) createOrg(id string) {
	b.Helper()
	if b.Orgs != nil {
		b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: id}, org.Author{}))
	}
}

// ok fails the case unless err is nil.
func (b *testBench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("unexpected error: %v", err)
	}
}

// checkError fails the case unless err wraps want.
func (b *testBench) checkError(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Errorf("got error %v, want one that wraps %q", err, want)
	}
}

// equal fails the case unless got is want. Nil and empty differ.
func (b *testBench) equal(got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got, compare()); diff != "" {
		b.Errorf("differs (-want +got):\n%s", diff)
	}
}

// checkEmpty fails the case unless err is nil and the list is empty.
func checkEmpty[T any](b *testBench, list []T, err error) {
	b.Helper()
	b.ok(err)
	if len(list) > 0 {
		b.Errorf("got %+v, want nothing", list)
	}
}

func compare() cmp.Option { return cmpopts.EquateErrors() }
