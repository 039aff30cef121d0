package main

import "slices"

// mutation is one deliberate mistake.
type mutation struct {
	Name     string
	Why      string // what breaks for a user
	File     string // from the module's root
	From, To string // From occurs once in the file
	Package  string // of the test that must fail
	Test     string // a regular expression for go test -run
	Tags     string // build tags
}

func mutations() []mutation {
	return slices.Concat(gatewayMutations(), callMutations(), approvalMutations(), storeMutations(), journalMutations())
}

// gatewayMutations are mistakes with leases, deadlines and clocks.
func gatewayMutations() []mutation {
	return []mutation{
		{
			Name: "leases are renewed later than their lifetime", Why: "the leases of a running gateway expire, and its runs are taken over by itself or by another gateway",
			File: "internal/run/keeper.go", From: "renewEvery    = 5 * time.Second", To: "renewEvery    = 20 * time.Second",
			Package: "internal/run", Test: "^TestALeaseIsRenewedWithinItsLifetime$",
		},
		{
			Name: "doubt about a lease is ignored", Why: "two owners work on one run after a pause of the process",
			File: "internal/run/keeper.go", From: "if !k.doubtful(", To: "if true || !k.doubtful(",
			Package: "internal/run", Test: "^TestAGatewayThatDoubtsItsLeaseRenewsItBeforeTheNextEffect$",
		},
		{
			Name: "nothing is claimed at the start", Why: "runs that a restart interrupted, and the callers that repeat their key, wait for the next tick",
			File: "internal/run/keeper.go", From: "n, err := k.claim(ctx)", To: "n, err := 0, ctx.Err()",
			Package: "internal/run", Test: "^TestARunIsClaimedBeforeOpenReturns$",
		},
		{
			Name: "a release that failed is forgotten", Why: "the run stops: its process renews the lease, so no other process can claim it",
			File: "internal/run/keeper.go", From: "\t\tk.orphans = append(k.orphans, orphan{lease: lease})", To: "\t\t_ = lease",
			Package: "internal/run", Test: "^TestAReleaseThatFailedIsTriedAgain$",
		},
		{
			Name: "a gateway that stops claims runs", Why: "it claims the runs that it has handed over, and cannot stop",
			File: "internal/run/keeper.go", From: "\tif k.isQuiet() {\n\t\treturn\n\t}\n", To: "",
			Package: "internal/run", Test: "^TestAGatewayThatStopsClaimsNothing$",
		},
		{
			Name: "a run that was taken over has no deadline", Why: "the run never ends if its model or a tool does not answer",
			File: "internal/run/resume.go", From: "error {\n\tstop := d.startDeadline()\n\tdefer stop()\n", To: "error {\n",
			Package: "internal/run", Test: "^TestARunThatWasTakenOverHasItsDeadline$",
		},
		{
			Name: "a cancel does not wake the owner", Why: "a cancelled run waits for its model or tool until that answers",
			File: "internal/run/submit.go", From: "r.leases.wake(runKey{orgID, runID})", To: "_ = runKey{orgID, runID}",
			Package: "internal/run", Test: "^TestACancelledRunEndsAtOnceAndAccountsForItsCalls$",
		},
	}
}

// callMutations are mistakes in what is recorded of calls.
func callMutations() []mutation {
	return []mutation{
		{
			Name: "usage of failed attempts is dropped", Why: "the tokens of failed attempts are missing in budgets and in the usage of the answer",
			File: "internal/loop/apply.go", From: "\ts.Usage = s.Usage.Add(b.Usage)\n\ts.Spent", To: "\ts.Spent",
			Package: "internal/loop", Test: "^TestUsageOfFailedAttemptsCounts$",
		},
		{
			Name: "a call that was abandoned is reported as not run", Why: "the journal says that a call was not sent, and the next owner sends it again",
			File: "internal/run/tools.go", From: "case r.done.Outcome != loop.NotRun, t.run.abandoned():", To: "case r.done.Outcome != loop.NotRun:",
			Package: "internal/run", Test: "^TestACallThatIsCutOffByAStopIsNotRecorded$",
		},
	}
}

// approvalMutations are mistakes with calls that wait for a person.
func approvalMutations() []mutation {
	return []mutation{
		{
			Name: "a tool that has changed is called as approved", Why: "a server changes what its tool does after a person has approved the call",
			File: "internal/run/tools.go", From: "if entry.Digest == c.Prepared.ToolDigest && ", To: "if ",
			Package: "internal/app", Test: "^TestAChangedToolIsAskedForAgain$",
		},
		{
			Name: "a decision can be changed", Why: "of two people who decide at the same time both believe that their answer counts",
			File: "internal/loop/allowed.go", From: "!c.Resolved && !c.Done)", To: "!c.Done)",
			Package: "internal/loop", Test: "^TestADecisionIsNotMadeTwice$",
		},
		{
			Name: "an approval can be given too late", Why: "a call runs that its org did not want to run any more",
			File: "internal/run/approval.go", From: "case a.overdue(r.o.Now()):", To: "case false:",
			Package: "internal/run", Test: "^TestADecisionThatIsTooLateIsADenial$",
		},
		{
			Name: "the key that asks approves", Why: "an agent approves its own calls, although the org wants another key",
			File: "internal/run/approval.go", From: "case own && o.Runtime.Approvers == org.OthersApprove:", To: "case false:",
			Package: "internal/app", Test: "^TestTheKeyThatAsksMayNotDecideIfTheOrgSaysSo$",
		},
		{
			Name: "free calls of a turn wait too", Why: "calls that need no approval wait for a person, with those that do",
			File: "internal/loop/decide.go", From: "case len(s.runnable()) > 0: // these", To: "case len(s.undecided()) == 0 && len(s.runnable()) > 0: // these",
			Package: "internal/app", Test: "^TestFreeCallsRunBeforeTheQuestion$",
		},
	}
}

// storeMutations are mistakes in when the store syncs.
func storeMutations() []mutation {
	return []mutation{
		{
			Name: "the writer never returns to synchronous=FULL", Why: "after the first relay, a power failure can remove accepted runs",
			File: "internal/store/sqlite/writer.go", From: "if on == t.unsyncedCommits {", To: "if on == t.unsyncedCommits || t.unsyncedCommits {",
			Package: "internal/store/sqlite", Test: "^TestARunIsSyncedAfterARelayWasNot$",
		},
		{
			Name: "the last write of a mixed group decides whether it syncs", Why: "a power failure can remove a run that was accepted in the same group as a relay",
			File: "internal/store/sqlite/writer.go", From: "if !one.deferSync {", To: "if one == group[len(group)-1] && !one.deferSync {",
			Package: "internal/store/sqlite", Test: "^TestAGroupIsSyncedIfOneOfItsWritesMustBe$",
		},
		{
			Name: "deferred writes are never synced while the store is idle", Why: "a power failure can remove audit rows of relays that are hours old",
			File: "internal/store/sqlite/writer.go", From: "case <-w.tx.syncDue():", To: "case <-(chan time.Time)(nil):",
			Package: "internal/store/sqlite", Test: "^TestARelayIsSyncedWithinASecond$",
		},
		{
			Name: "deferred writes are never synced under constant load", Why: "under constant load, a power failure can remove audit rows of relays that are hours old",
			File: "internal/store/sqlite/writer.go", From: "(t.unsynced.IsZero() || time.Since(t.unsynced) < maxUnsynced)", To: "true",
			Package: "internal/store/sqlite", Test: "^TestALazyGroupIsSyncedWhenAnEarlierOneIsOld$",
		},
		{
			Name: "a commit that changes nothing counts as a sync", Why: "the runner claims runs once a second; if that counts as a sync, rows of relays are never synced",
			File: "internal/store/sqlite/writer.go", From: "if !t.unsyncedCommits && !t.unsynced.IsZero() {", To: "if false {",
			Package: "internal/store/sqlite", Test: "^TestARelayIsSyncedWithinASecond$",
		},
		{
			Name: "a checkpoint is written before its rows are on disk", Why: "after a power failure, the checkpoint file signs rows that are not in the database",
			File: "internal/audit/keeper.go", From: "if err := k.o.Log.SyncAudit(ctx); err != nil { // no power", To: "if err := error(nil); err != nil { // no power",
			Package: "internal/store/sqlite", Test: "^TestACheckpointFollowsTheDisk$",
		},
		{
			Name: "leases follow the wall clock", Why: "a step of the wall clock expires all leases of a gateway",
			File: "internal/store/sqlite/store.go", From: "clock.NewSteady(o.Now()).Now", To: "(clock.Steady{}).Now; o.LeaseNow = o.Now",
			Package: "internal/store/sqlite", Test: "^TestLeasesAreMeasuredByASteadyClock$",
		},
		{
			Name: "a gateway claims runs that it is working on", Why: "a gateway that was paused claims the runs that it still works on",
			File: "internal/store/sqlite/leases.go", From: " AND owner <> ?1", To: "",
			Package: "internal/store/sqlite", Test: "^TestAnOwnerDoesNotClaimItsOwnRun$",
		},
		{
			Name: "facts are dated by the wall clock", Why: "a step of the clock ends runs for their deadline, or lets them go on without one",
			File: "internal/run/drive.go", From: "if err := d.noticeEnd()", To: "d.run.dates = clock.NewSteady(d.o.Now())\n\t\tif err := d.noticeEnd()",
			Package: "internal/sim", Test: "^TestPromisesAreKept$",
		},
		{
			Name: "a run goes on with the dates of the wall clock", Why: "if the wall clock was set back while no gateway ran, the deadline of the run does not advance",
			File: "internal/run/state.go", From: "last.After(s.dates.Now())", To: "false && last.After(s.dates.Now())",
			Package: "internal/run", Test: "^TestARunGoesOnWithItsDatesAfterTheClockWasSetBack$",
		},
		{
			Name: "suspects are worked on at the same time", Why: "other runs are lost with the run whose call kills the gateway",
			File: "internal/run/suspects.go", From: "if !run.state().Suspect() {\n\t\treturn nil", To: "if true {\n\t\treturn nil",
			Package: "internal/run", Test: "^TestSuspectsAreGoneOnWithOneAfterTheOther$",
		},
		{
			Name: "an orderly restart counts against a run", Why: "runs that were handed over in an orderly stop end as lost",
			File: "internal/run/resume.go", From: "HandedOver: d.run.lease.Handed", To: "HandedOver: false",
			Package: "internal/run", Test: "^TestARunThatIsHandedOverManyTimesIsNotLost$",
		},
	}
}

// journalMutations are mistakes of a gateway that reads what another one has
// written.
func journalMutations() []mutation {
	return []mutation{
		{
			Name: "the safety check on resume is switched off", Why: "a run whose journal has a gap goes on, and makes a call again that must not be repeated",
			File: "internal/run/projection.go", From: "err := loop.CheckSafety(p.state, f); err != nil", To: "err := loop.CheckSafety(p.state, f); false && err != nil",
			Package: "internal/run", Test: "^TestARunThatIsGivenUpAccountsForItsCalls$",
		},
		{
			Name: "stored journals are held to the present rules", Why: "a build with another limit ends the runs that it finds",
			File: "internal/run/projection.go", From: "err := loop.CheckSafety(p.state, f)", To: "err := loop.Allowed(p.state, f)",
			Package: "internal/run", Test: "^TestARunThatOtherRulesBeganIsNotLost$",
		},
		{
			Name: "a number of an old accepted is that of the present build", Why: "a run that an older release began changes its limits with the build",
			File: "internal/loop/apply.go", From: "b.Policy.withDefaults(version1Defaults())", To: "b.Policy.withDefaults(defaults{})",
			Package: "internal/loop", Test: "^TestMissingRulesDefaultToVersion1$",
		},
		{
			Name: "a run that is given up forgets its calls", Why: "the journal has no outcome for calls that had started",
			File: "internal/loop/abandon.go", From: "for _, c := range open {", To: "for _, c := range map[CallKey]*Call{} {",
			Package: "internal/run", Test: "^TestARunThatIsGivenUpAccountsForItsCalls$",
		},
		{
			Name: "a journal that cannot be decoded is not set aside", Why: "the run is claimed and decoded again after each failure",
			File: "internal/run/aside.go", From: "done, err := d.o.Leases.SetAside(ctx, d.run.lease, cmp.Or(why.Last, d.run.state().Seq), a)", To: "done, err := cmp.Or(true), ctx.Err()",
			Package: "internal/run", Test: "^TestManyRunsThatCannotBeDecodedAreQuiet$",
		},
		{
			Name: "the version of a fact is ignored", Why: "facts of a newer build are misread",
			File: "internal/loop/codec.go", From: "if version > Version {", To: "if false && version > Version {",
			Package: "internal/loop", Test: "^TestDecodeErrors$",
		},
	}
}
