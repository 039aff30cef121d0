package main

import "slices"

// mutation is one deliberate mistake. Its place is found by names and statements, so that code
// can move to another file or package without a change here.
type mutation struct {
	Name     string
	Why      string // what breaks for a user
	In       string // a function, Type.method, or a constant or variable of a package, of internal/
	From, To string // From occurs once in such a declaration; white space and comments are ignored
	Test     string // the test that must fail
}

func mutations() []mutation {
	return slices.Concat(gatewayMutations(), moneyMutations(), callMutations(), approvalMutations(), pauseMutations(), compactionMutations(), storeMutations(), journalMutations(), hookMutations(), endpointMutations(), sessionMutations(), webhookMutations(), isolationMutations())
}

// gatewayMutations are mistakes with leases, deadlines and clocks.
func gatewayMutations() []mutation {
	return []mutation{
		{
			Name: "leases are renewed later than their lifetime", Why: "the leases of a running gateway expire, and its runs are taken over by itself or by another gateway",
			In: "renewEvery", From: "renewEvery    = 5 * time.Second", To: "renewEvery    = 20 * time.Second",
			Test: "TestALeaseIsRenewedWithinItsLifetime",
		},
		{
			Name: "doubt about a lease is ignored", Why: "two owners work on one run after a pause of the process",
			In: "leaseKeeper.check", From: "if !k.doubtful(", To: "if true || !k.doubtful(",
			Test: "TestAGatewayThatDoubtsItsLeaseRenewsItBeforeTheNextEffect",
		},
		{
			Name: "nothing is claimed at the start", Why: "runs that a restart interrupted, and the callers that repeat their key, wait for the next tick",
			In: "leaseKeeper.open", From: "n, err := k.claim(ctx)", To: "n, err := 0, ctx.Err()",
			Test: "TestARunIsClaimedBeforeOpenReturns",
		},
		{
			Name: "a release that failed is forgotten", Why: "the run stops: its process renews the lease, so no other process can claim it",
			In: "leaseKeeper.release", From: "k.orphans = append(k.orphans, orphan{lease: lease})", To: "_ = lease",
			Test: "TestAReleaseThatFailedIsTriedAgain",
		},
		{
			Name: "a gateway that stops claims runs", Why: "it claims the runs that it has handed over, and cannot stop",
			In: "leaseKeeper.maintain", From: "if k.isQuiet() || k.mayClaim != nil && !k.mayClaim() { return }", To: "",
			Test: "TestAGatewayThatStopsClaimsNothing",
		},
		{
			Name: "a run that was taken over has no deadline", Why: "the run never ends if its model or a tool does not answer",
			In: "driver.playRest", From: "stop := d.deadline.start(&d.run); defer stop()", To: "",
			Test: "TestARunThatWasTakenOverHasItsDeadline",
		},
		{
			Name: "a cancel does not wake the owner", Why: "a cancelled run waits for its model or tool until that answers",
			In: "Runner.requestEnd", From: "r.leases.wake(key)", To: "_ = journal.RunKey{Org: orgID, Run: runID}",
			Test: "TestACancelledRunEndsAtOnceAndAccountsForItsCalls",
		},
	}
}

// moneyMutations are mistakes in what calls cost.
func moneyMutations() []mutation {
	return []mutation{
		{
			Name: "the call after the warning has tools", Why: "what is kept of the budget is spent on tool calls, and the run ends without an answer",
			In: "decision.planTurn", From: "case warnedBefore: p.answerNow = true", To: "case warnedBefore: p.warn = false",
			Test: "TestDecide",
		},
		{
			Name: "cached tokens are billed twice", Why: "a conversation whose prompt is cached costs more than one whose prompt is not",
			In: "Cost", From: "fresh := max(input-cached-write-hour, 0)", To: "fresh := max(input-write-hour, 0)",
			Test: "TestCost",
		},
		{
			Name: "cache writes are dropped", Why: "the dearest tokens of a prompt cost nothing",
			In: "Cost", From: "t.add(write, int64(r.CacheWrite))", To: "",
			Test: "TestCost",
		},
		{
			Name: "a reservation has the rates of short prompts", Why: "a long prompt costs twice its reservation, and exceeds the cap",
			In: "fixedCost", From: "r := p.rates(prompt.Tier, tokens)", To: "r := p.rates(prompt.Tier, 0)",
			Test: "TestMaxCost",
		},
		{
			Name: "written tokens are missing in the usage", Why: "cache writes of Claude models cost nothing",
			In: "usage.sum", From: "CachedInput: n(u.CacheRead), CacheWrite: write,", To: "CachedInput: n(u.CacheRead),",
			Test: "TestUsageHasEachTokenOnce",
		},
		{
			Name: "parallel calls pass the same check of a budget", Why: "many calls at once exceed a cap that each of them fits",
			In: "Keeper.Reserve", From: "p.slice.held = p.slice.held.Add(p.amount)", To: "_ = p.amount",
			Test: "TestConcurrentCallsStayWithinTheCap",
		},
		{
			Name: "a budget is looked at without the next call", Why: "a call that does not fit starts while anything is left",
			In: "fits", From: "amount <= limit-used", To: "used < limit && amount >= 0",
			Test: "TestABudgetThatIsUsedUp",
		},
		{
			Name: "a new day has the spending of the old one", Why: "a budget that is used up refuses calls the next day, too",
			In: "WindowAt", From: "w.Scope += \"/\" + t.Format(\"2006-01-02\")", To: "",
			Test: "TestWindows",
		},
		{
			Name: "a stream that the client cuts costs what it could see", Why: "a client that leaves before the end passes every cap: reasoning is not seen",
			In: "State.cost", From: "most = most.Max(counted)", To: "most = counted",
			Test: "TestWhatARelayIsCharged",
		},
		{
			Name: "a fallback to a dearer target is tried", Why: "a cheap model that fails uses the cap up at the price of a dear one",
			In: "decision.unfit", From: "return SkipNoPrice", To: "return \"\"",
			Test: "TestAFallbackThatACapLeavesNoRoomForIsNotTried",
		},
		{
			Name: "a budget does not see what tool calls cost", Why: "calls of paid tools pass every cap",
			In: "toolCaller.sharesPrice", From: "return c.Prepared.PriceNano > 0 && len(t.run.state().Budgets) > 0", To: "return false",
			Test: "TestToolCallsHaveAPrice",
		},
		{
			Name: "the reservation of a call is never released", Why: "a budget of which little is spent refuses calls until the gateway starts again",
			In: "Reservation.Settle", From: "s.held = s.held.Sub(p.amount)", To: "",
			Test: "TestFewCallsAskTheStore",
		},
	}
}

// pauseMutations are mistakes with runs that wait at a limit.
func pauseMutations() []mutation {
	return []mutation{
		{
			Name: "calls over the limit of a run that pauses are skipped", Why: "the model is told that they were not run, and a raise comes too late for them",
			In: "decision.judge", From: "pauses := s.pauses()", To: "pauses := false",
			Test: "TestARunPausesAtItsLimits",
		},
		{
			Name: "a run that is out of time starts a further call", Why: "the time limit of runs that pause limits nothing",
			In: "decision.inTime", From: "if s.TimeUp {", To: "if false {",
			Test: "TestARunPausesAtItsDeadline",
		},
		{
			Name: "a raise that does not help is taken", Why: "a person is told that the run goes on, and it waits again at once",
			In: "allowRaisedPause", From: "again != \"\" {", To: "false && again != \"\" {",
			Test: "TestRaisesOfAPausedRunThatAreNotAllowed",
		},
		{
			Name: "a model call is made for which a budget has no room", Why: "a run that pauses for a budget overruns it first",
			In: "modelCaller.begin", From: "errDecideAgain)", To: "nil)",
			Test: "TestARunPausesForABudgetOfSeveralRuns",
		},
		{
			Name: "a raise exceeds what the org allows", Why: "anybody who may cancel a run can let it spend more than the operator has set",
			In: "raisable.check", From: "case to > l.ceiling:", To: "case false:",
			Test: "TestRaisesThatAreRefused",
		},
	}
}

// callMutations are mistakes in what is recorded of calls.
func callMutations() []mutation {
	return []mutation{
		{
			Name: "max_uses holds for a turn", Why: "a model that calls a tool again in each round calls it without end, and the org pays",
			In: "State.start", From: "s.Uses = s.Accepted.countUse(s.Uses, &c, 1)", To: "_ = s.Accepted.countUse(s.Uses, &c, 1)",
			Test: "TestCallsBeyondMaxUsesAreAnswered",
		},
		{
			Name: "max_uses holds for later turns only", Why: "a model that calls a tool many times in one turn exceeds the limit",
			In: "decision.judge", From: "uses = s.Accepted.countUse(uses, c, 1)", To: "_ = s.Accepted.countUse(uses, c, 1)",
			Test: "TestCallsBeyondMaxUsesAreAnswered",
		},
		{
			Name: "an early decision is used twice", Why: "a person who approves one call has approved all that follow",
			In: "State.decide", From: "s.Early = s.Early[1:]", To: "_ = s.Early[1:]",
			Test: "TestCallsAreDecidedBeforeTheyAreAskedFor",
		},
		{
			Name: "what a session has said is a response", Why: "any key of the org reads, continues and deletes what a session of another key has said",
			In: "ofOwner", From: "c != nil && c.Owner != owner", To: "c != nil && c.Owner == owner && false",
			Test: "TestTurnsOfSessionsAreNoResponses",
		},
		{
			Name: "the turn of a session that runs is a response in progress", Why: "any key of the org follows and deletes a run of a session of another key",
			In: "unfinishedSegment", From: "keep.Owner != owner || ", To: "",
			Test: "TestTurnsOfSessionsAreNoResponses",
		},
		{
			Name: "a key takes any request for a conversation", Why: "a client that uses an Idempotency-Key twice gets the answer to another request",
			In: "keyedRequests.begin", From: "if k.Hash != key.Hash {", To: "if false {",
			Test: "TestConversationsWithAKey",
		},
		{
			Name: "a request with a key does not note what it has made", Why: "a conversation that was deleted is made again by a repeated request",
			In: "keyedRequests.finish", From: "k.Done = true", To: "k.Done = false",
			Test: "TestConversationsWithAKey",
		},
		{
			Name: "a nil definition of a tool is restored as null", Why: "a run that goes on after an approval fails: the provider refuses null among the tools",
			In: "storedRequest.dropNulls", From: `if string(t.Native) == "null" {`, To: `if false {`,
			Test: "TestAnItemIsTheSameOnEveryPath",
		},
		{
			Name: "usage of failed attempts is dropped", Why: "the tokens of failed attempts are missing in budgets and in the usage of the answer",
			In: "State.failAttempt", From: "s.spend(s.Counts.Rounds, b.Usage, s.Cost(b))", To: "s.spend(s.Counts.Rounds, model.Usage{}, s.Cost(b))",
			Test: "TestUsageOfFailedAttemptsCounts",
		},
		{
			Name: "a call that was abandoned is reported as not run", Why: "the journal says that a call was not sent, and the next owner sends it again",
			In: "toolCaller.settle", From: "case r.done.Outcome != loop.NotRun, t.run.abandoned():", To: "case r.done.Outcome != loop.NotRun:",
			Test: "TestACallThatIsCutOffByAStopIsNotRecorded",
		},
	}
}

// compactionMutations are mistakes with prompts that are made shorter.
func compactionMutations() []mutation {
	return []mutation{
		{
			Name: "the rest of an answer is asked for without end", Why: "a model that never comes to an end is paid for until the budget of the run is used up",
			In: "State.ContinuesAfter", From: "s.Continued < s.Accepted.Continuations", To: "s.Accepted.Continuations > 0",
			Test: "TestWhichAnswersAreContinued",
		},
		{
			Name: "the parts of an answer are rounds", Why: "an agent with few steps ends before its model has called a tool",
			In: "Counts.After", From: "b.Purpose == PurposeTurn && !b.Continues", To: "b.Purpose == PurposeTurn",
			Test: "TestDecide",
		},
		{
			Name: "the model sees the parts of its answer only", Why: "a step after an answer in parts begins with its last part, and the stored conversation has no more",
			In: "State.keepAnswer", From: "= b.WholeRef, seg.Bytes+b.Bytes,", To: "= b.ItemsRef, seg.Bytes+b.Bytes,",
			Test: "TestTheTranscriptHasTheWholeAnswer",
		},
		{
			Name: "a prompt below its threshold is compacted", Why: "the provider's cache of the prompt is lost at every call, which costs more than it saves",
			In: "decision.compactFirst", From: "case limit <= 0 || s.PromptTokens() <= limit:", To: "case limit <= 0:",
			Test: "TestWhenAPromptIsCompacted",
		},
		{
			Name: "summaries that fail are tried at each call", Why: "a model that cannot write summaries is paid for one before each call of the run",
			In: "decision.compacts", From: "c.Failed < maxFailedCompactions", To: "c.Failed < 100*maxFailedCompactions",
			Test: "TestCompactionsThatDoNotHelp",
		},
		{
			Name: "a prompt that cannot be made shorter is sent again and again", Why: "a run whose tool definitions exceed the window spends its limits in vain, and is not told why",
			In: "decision.compactFirst", From: "s.Compactions.Ineffective >= maxIneffective", To: "s.Compactions.Ineffective >= 100*maxIneffective",
			Test: "TestCompactionsThatDoNotHelp",
		},
		{
			Name: "a refused prompt ends the run", Why: "a run whose window is not known ends, although it could be made shorter",
			In: "decision.recover", From: "if a, due := s.compactRefused(); due {", To: "if a, due := s.compactRefused(); due && a == nil {",
			Test: "TestARefusalNamesTheWindow",
		},
		{
			Name: "the estimated size of a compacted prompt is a count", Why: "the next call costs more than was reserved for it, and exceeds the budget",
			In: "State.compact", From: "s.CountedTokens, s.UncountedBytes = 0, b.Bytes+more", To: "_ = b.Bytes",
			Test: "TestWhatComesAfterACompactionIsReserved",
		},
		{
			Name: "the order of a summary is not reserved", Why: "a summary costs more than was reserved for it, and exceeds the budget",
			In: "decision.compact", From: "UncountedBytes: s.UncountedBytes + window.OrderBytes,", To: "UncountedBytes: min(s.UncountedBytes, window.OrderBytes),",
			Test: "TestWhatComesAfterACompactionIsReserved",
		},
		{
			Name: "an empty summary replaces the conversation", Why: "the model goes on without knowing what it was asked for",
			In: "compactor.summarize", From: `out.text == ""`, To: `out.text == "-"`,
			Test: "TestSummariesThatFail",
		},
	}
}

// approvalMutations are mistakes with calls that wait for a person.
func approvalMutations() []mutation {
	return []mutation{
		{
			Name: "a tool that has changed is called as approved", Why: "a server changes what its tool does after a person has approved the call",
			In: "toolCaller.prepareAgain", From: "if entry.Digest == c.Prepared.ToolDigest && ", To: "if ",
			Test: "TestAChangedToolIsAskedForAgain",
		},
		{
			Name: "a decision can be changed", Why: "of two people who decide at the same time both believe that their answer counts",
			In: "allowResolved", From: "!c.Resolved && !c.Done)", To: "!c.Done)",
			Test: "TestADecisionIsNotMadeTwice",
		},
		{
			Name: "an approval can be given too late", Why: "a call runs that its org did not want to run any more",
			In: "audience.tryResolve", From: "case a.Overdue(u.o.Now()):", To: "case false:",
			Test: "TestADecisionThatIsTooLateIsADenial",
		},
		{
			Name: "the key that asks approves", Why: "an agent approves its own calls, although the org wants another key",
			In: "Approval.MayDecide", From: "case own && o.Runtime.Approvers == org.OthersApprove:", To: "case false:",
			Test: "TestTheKeyThatAsksMayNotDecideIfTheOrgSaysSo",
		},
		{
			Name: "free calls of a turn wait too", Why: "calls that need no approval wait for a person, with those that do",
			In: "Decide", From: "case len(s.runnable()) > 0:", To: "case len(s.undecided()) == 0 && len(s.runnable()) > 0:",
			Test: "TestFreeCallsRunBeforeTheQuestion",
		},
	}
}

// storeMutations are mistakes in when the store syncs.
func storeMutations() []mutation {
	return []mutation{
		{
			Name: "the writer never returns to synchronous=FULL", Why: "after the first relay, a power failure can remove accepted runs",
			In: "tx.setUnsyncedCommits", From: "if on == t.unsyncedCommits {", To: "if on == t.unsyncedCommits || t.unsyncedCommits {",
			Test: "TestARunIsSyncedAfterARelayWasNot",
		},
		{
			Name: "the last write of a mixed group decides whether it syncs", Why: "a power failure can remove a run that was accepted in the same group as a relay",
			In: "tx.mayDeferSync", From: "if !one.deferSync {", To: "if one == group[len(group)-1] && !one.deferSync {",
			Test: "TestAGroupIsSyncedIfOneOfItsWritesMustBe",
		},
		{
			Name: "deferred writes are never synced while the store is idle", Why: "a power failure can remove audit rows of relays that are hours old",
			In: "writer.run", From: "case <-w.tx.syncDue():", To: "case <-(chan time.Time)(nil):",
			Test: "TestARelayIsSyncedWithinASecond",
		},
		{
			Name: "deferred writes are never synced under constant load", Why: "under constant load, a power failure can remove audit rows of relays that are hours old",
			In: "tx.mayDeferSync", From: "(t.unsynced.IsZero() || time.Since(t.unsynced) < maxUnsynced)", To: "true",
			Test: "TestALazyGroupIsSyncedWhenAnEarlierOneIsOld",
		},
		{
			Name: "a commit that changes nothing counts as a sync", Why: "the runner claims runs once a second; if that counts as a sync, rows of relays are never synced",
			In: "tx.commitTransaction", From: "if !t.unsyncedCommits && !t.unsynced.IsZero() {", To: "if false {",
			Test: "TestARelayIsSyncedWithinASecond",
		},
		{
			Name: "a checkpoint is written before its rows are on disk", Why: "after a power failure, the checkpoint file signs rows that are not in the database",
			In: "Keeper.signDue", From: "if err := k.o.Log.SyncAudit(ctx); err != nil {", To: "if err := error(nil); err != nil {",
			Test: "TestACheckpointFollowsTheDisk",
		},
		{
			Name: "leases follow the wall clock", Why: "a step of the wall clock expires all leases of a gateway",
			In: "Open", From: "clock.NewSteady(o.Now()).Now", To: "(clock.Steady{}).Now; o.LeaseNow = o.Now",
			Test: "TestLeasesAreMeasuredByASteadyClock",
		},
		{
			Name: "a gateway claims runs that it is working on", Why: "a gateway that was paused claims the runs that it still works on",
			In: "tx.claim", From: " AND owner <> ?1", To: "",
			Test: "TestAnOwnerDoesNotClaimItsOwnRun",
		},
		{
			Name: "facts are dated by the wall clock", Why: "a step of the clock ends runs for their deadline, or lets them go on without one",
			In: "driver.play", From: "if err := d.noticeEnd()", To: "d.run.dates = clock.NewSteady(d.o.Now()); if err := d.noticeEnd()",
			Test: "TestPromisesAreKept",
		},
		{
			Name: "a run goes on with the dates of the wall clock", Why: "if the wall clock was set back while no gateway ran, the deadline of the run does not advance",
			In: "runState.date", From: "last.After(s.dates.Now())", To: "false && last.After(s.dates.Now())",
			Test: "TestARunGoesOnWithItsDatesAfterTheClockWasSetBack",
		},
		{
			Name: "suspects are worked on at the same time", Why: "other runs are lost with the run whose call kills the gateway",
			In: "driver.awaitTurn", From: "if !run.state().Suspect() { return nil", To: "if true { return nil",
			Test: "TestSuspectsAreGoneOnWithOneAfterTheOther",
		},
		{
			Name: "an orderly restart counts against a run", Why: "runs that were handed over in an orderly stop end as lost",
			In: "driver.resume", From: "HandedOver: d.run.lease.Handed", To: "HandedOver: false",
			Test: "TestARunThatIsHandedOverManyTimesIsNotLost",
		},
	}
}

// journalMutations are mistakes of a gateway that reads what another one has
// written.
func journalMutations() []mutation {
	return []mutation{
		{
			Name: "the safety check on resume is switched off", Why: "a run whose journal has a gap goes on, and makes a call again that must not be repeated",
			In: "Writer.Recover", From: "err := loop.CheckSafety(p.state, f); err != nil", To: "err := loop.CheckSafety(p.state, f); false && err != nil",
			Test: "TestARunThatIsGivenUpAccountsForItsCalls",
		},
		{
			Name: "stored journals are held to the present rules", Why: "a build with another limit ends the runs that it finds",
			In: "Writer.Recover", From: "err := loop.CheckSafety(p.state, f)", To: "err := loop.Allowed(p.state, f)",
			Test: "TestARunThatOtherRulesBeganIsNotLost",
		},
		{
			Name: "a number of an old accepted is that of the present build", Why: "a run that an older release began changes its limits with the build",
			In: "Apply", From: "b.Policy.withDefaults(missingDefaults())", To: "b.Policy.withDefaults(defaults{})",
			Test: "TestMissingRulesHaveFixedDefaults",
		},
		{
			Name: "a run that is given up forgets its calls", Why: "the journal has no outcome for calls that had started",
			In: "Abandon", From: "for _, c := range open {", To: "for _, c := range map[CallKey]*Call{} {",
			Test: "TestARunThatIsGivenUpAccountsForItsCalls",
		},
		{
			Name: "a journal that cannot be decoded is not set aside", Why: "the run is claimed and decoded again after each failure",
			In: "driver.setAside", From: "done, err := d.o.Leases.SetAside(ctx, d.run.lease, cmp.Or(why.Last, d.run.state().Seq), a)", To: "done, err := cmp.Or(true), ctx.Err()",
			Test: "TestManyRunsThatCannotBeDecodedAreQuiet",
		},
		{
			Name: "the version of a fact is ignored", Why: "facts of a newer build are misread",
			In: "Decode", From: "if version > Version {", To: "if false && version > Version {",
			Test: "TestDecodeErrors",
		},
		{
			Name: "prompts are shortened for a provider that does it itself", Why: "the client pays two summaries, and the provider's own has nothing to stand for",
			In: "decision.keepsContext", From: "!own", To: "(own || !own)",
			Test: "TestAProviderMayShortenPromptsItself",
		},
		{
			Name: "the org decides about long prompts before its key", Why: "a key cannot switch compaction off",
			In: "contextPolicy", From: "cmp.Or(r.Context, r.KeyContext, rt.Context)", To: "cmp.Or(r.Context, rt.Context, r.KeyContext)",
			Test: "TestTheContextPolicyOfARun",
		},
		{
			Name: "an empty summary is a compaction", Why: "a client goes on without its conversation",
			In: "compactor.finishSummary", From: `case summary == "":`, To: `case summary == "-":`,
			Test: "TestAFailedSummaryIsNoCompaction",
		},
		{
			Name: "an org that is made again opens compactions of the one before", Why: "what was said in a deleted org can be read by the next one with its id",
			In: "requestReader.sealOf", From: "caller.Org.CreatedAt.UTC().Format(time.RFC3339Nano)", To: `""+time.Time{}.Format(time.RFC3339Nano)`,
			Test: "TestWhatIsNoCompaction",
		},
		{
			Name: "a target whose breaker has opened is tried again", Why: "a run keeps on at a provider that is out",
			In: "decision.recover", From: "&& !(f.TargetOpen && len(s.left()) > 0):", To: ":",
			Test: "TestDecideOwnsAttemptsAndTargets",
		},
	}
}

// sessionMutations are mistakes with sessions of agents, and with the messages that they get.
func sessionMutations() []mutation {
	return []mutation{
		{
			Name: "a turn begins with what was read before it was accepted", Why: "a message that is sent when a turn ends goes on without what that turn has said",
			In: "driver.addInput", From: "err != nil || read.Early || !slices.Equal(parts, read.Parts)",
			To:   "err != nil && !slices.Equal(parts, read.Parts)",
			Test: "TestPromisesAreKept",
		},
		{
			Name: "a message that no model has seen is lost with its run", Why: "its sender was told that it is accepted, and no later turn knows it",
			In: "runState.segment", From: "c.Items = append(c.Items, s.events.Transcript(s.state().LateRefs())...)", To: "",
			Test: "TestPromisesAreKept",
		},
		{
			Name: "a run ends although a message has come", Why: "its sender was told that it is accepted, and no later turn knows it",
			In: "runState.commit", From: "hasKind(bodies, loop.KindFinished, ", To: "hasKind(bodies, ",
			Test: "TestPromisesAreKept",
		},
		{
			Name: "the clock of who sends a message counts", Why: "a message from a process whose clock is ahead ends the run for its time limit",
			In: "Runner.appendForeign", From: "at = state.At", To: "at = max(at, state.At)",
			Test: "TestPromisesAreKept",
		},
		{
			Name: "a message precedes the results of the calls under way", Why: "a provider refuses a prompt in which a call has no result",
			In: "State.addInput", From: "s.Attempt.Open || s.CutRef() != \"\" || s.callsOpen() || s.Continues()", To: "s.Continues()",
			Test: "TestInputThatIsLateIsKnown",
		},
		{
			Name: "a message is delivered again", Why: "a client that repeats its request tells the model the same twice",
			In: "sessionRecord.checkInput", From: `in.Key != "" && known.Key == in.Key`, To: `in.Key != "" && known.Key == in.Key && false`,
			Test: "TestPromisesAreKept",
		},
		{
			Name: "a reservation is used for a prompt that has got longer", Why: "a call costs more than was reserved for it, and exceeds the budget",
			In: "runState.commit", From: "loop.KindFinished, loop.KindReserved, loop.KindInputAdded", To: "loop.KindFinished, loop.KindInputAdded",
			Test: "TestPromisesAreKept",
		},
		{
			Name: "a queued turn overtakes the one before it", Why: "the second message of a session is answered first",
			In: "Journal.notItsTurn", From: `return j.unfinished(r, key.run) != ""`, To: "return false",
			Test: "TestPromisesAreKept",
		},
		{
			Name: "a run waits for a budget although it does not pause", Why: "a run whose answer was cut off waits for a person who was never asked for",
			In: "State.answerRemains", From: "!s.Attempt.Open &&", To: "",
			Test: "TestDecide",
		},
		{
			Name: "an answer is told before its hooks have decided", Why: "the client sees what a hook would have denied",
			In: "fold.tellItems", From: "|| p.state.Accepted.HoldsAnswers()", To: "",
			Test: "TestHooksDecideOnTheAnswer",
		},
	}
}

// hookMutations are mistakes with hooks.
func hookMutations() []mutation {
	return []mutation{
		{
			Name: "hooks are told of runs that are not complete", Why: "a program books a run that has failed",
			In: "HooksAfter", From: "end.Reason != event.Complete", To: `end.Reason == ""`,
			Test: "TestHooksAfterARun",
		},
		{
			Name: "a hook that has failed is told again", Why: "a program books a run twice, although nobody was killed",
			In: "Hooks.attempt", From: "case errors.Is(err, journal.ErrNotSent):", To: "case err != nil && !errors.Is(err, org.ErrNotFound):",
			Test: "TestHooksAreToldOnce",
		},
		{
			Name: "a call is prepared before its hooks have run", Why: "a call that a hook would deny is executed",
			In: "allowPreparedByHooks", From: "len(due) > 0", To: "len(due) > 99",
			Test: "TestHooksThatAreDue",
		},
		{
			Name: "a result is recorded before its hooks have run", Why: "the model sees a result that a hook would have redacted",
			In: "allowResultByHooks", From: "len(due) > 0", To: "len(due) > 99",
			Test: "TestNoResultBeforeItsHooks",
		},
		{
			Name: "a rule that cannot be evaluated allows", Why: "a long argument passes each rule",
			In: "Hook.Judge", From: "case err != nil:", To: "case false:",
			Test: "TestRulesOfHooks",
		},
		{
			Name: "hooks go on after a denial", Why: "a URL learns of a call that was denied, and may seem to allow it",
			In: "State.HooksDue", From: "r.Verdict == HookDeny", To: `r.Verdict == "-"`,
			Test: "TestHooksThatAreDue",
		},
		{
			Name: "a key with hooks can switch off the loop", Why: "a client avoids the hooks of its org",
			In: "Handler.serve", From: "if hooked && optedOut(r.Header) {", To: "if false && optedOut(r.Header) {",
			Test: "TestHooksAreNeverSkipped",
		},
		{
			Name: "an answer without the decision of its hooks is part of the transcript", Why: "a program gets the text that its hook would have withheld, in the result of a cancelled run",
			In: "State.undecidedAnswer", From: `s.JudgedAnswer() != ""`, To: "true",
			Test: "TestAnswersAreJudged",
		},
		{
			Name: "an answer is told before all of its hooks have decided", Why: "a client whose run is cancelled gets what a hook would have redacted",
			In: "State.JudgedAnswer", From: "len(ran) < len(s.hooksOf(PreResponse))", To: "len(ran) < 0",
			Test: "TestAnswersAreJudged",
		},
		{
			Name: "a denied answer keeps the reason of the model's stop", Why: "a client takes a blocked answer for one that was cut off, and asks for the rest",
			In: "decision.answerReason", From: "case s.AnswerDenied():", To: "case false:",
			Test: "TestAnswersAreJudged",
		},
		{
			Name: "pieces of an answer are told as they come", Why: "a stream shows what a hook redacts",
			In: "modelCaller.pass", From: "if p.HoldsAnswers() {", To: "if false {",
			Test: "TestHooksDecideOnTheAnswer",
		},
	}
}

// endpointMutations are mistakes with tools that are HTTP endpoints.
func endpointMutations() []mutation {
	return []mutation{
		{
			Name: "a response of an endpoint is read to its end", Why: "one endpoint fills the memory of the gateway",
			In: "Tool.most", From: "return utf8.UTFMax*t.settings.MaxCharacters + 1", To: "_ = utf8.UTFMax; return 1 << 40",
			Test: "TestAResponseWithoutEndIsNotReadToItsEnd",
		},
		{
			Name: "an argument leads to another path of an endpoint", Why: "a model reaches paths that the tool was not made for",
			In: "leads", From: `segment == "." || segment == ".."`, To: `segment == ""`,
			Test: "TestAnArgumentLeadsNowhereElse",
		},
	}
}

// webhookMutations are mistakes with webhooks and their messages.
func webhookMutations() []mutation {
	return []mutation{
		{
			Name: "messages of a subject are sent in any order", Why: "a receiver is told that a run waits after it was told that the run has ended",
			In: "isDue", From: " AND e.rowid < o.rowid", To: " AND 0",
			Test: "TestAMessageWaitsForTheOneBeforeIt",
		},
		{
			Name: "the delay between attempts does not grow", Why: "a receiver that is down for hours gets an attempt every five seconds for each run",
			In: "Delay", From: "i := 1", To: "i := failed",
			Test: "TestDelaysDoubleUpToAnHour",
		},
		{
			Name: "a message is sent again without end", Why: "messages fill the outbox whose receiver does not exist any more",
			In: "After", From: "if next >= d.GiveUpAt {", To: "if false {",
			Test: "TestAMessageIsGivenUpAfter72Hours",
		},
		{
			Name: "a redirect counts as delivered", Why: "the receiver does not have the message, and it is never sent again",
			In: "Result.Delivered", From: "return r.Err == nil && r.Status/100 == 2", To: "return r.Status/100 <= 3",
			Test: "TestAReceiverThatLeadsInsideGetsItsMessagesOnceItIsWell",
		},
		{
			Name: "an attempt that a stop cuts off has failed", Why: "a restart of the gateway delays messages by the time of a failure",
			In: "Deliverer.attempt", From: "if ctx.Err() != nil && !result.Delivered() {", To: "if false {",
			Test: "TestAMessageWhoseAttemptIsCutOffIsSentAgain",
		},
		{
			Name: "the timestamp is not signed", Why: "a recorded message can be sent to the receiver again later",
			In: "Sign", From: `mac.Write([]byte(id + "." + stamp + "."))`, To: `mac.Write([]byte(id + "."))`,
			Test: "TestASignatureIsThatOfTheSpecification",
		},
		{
			Name: "only the new secret signs during a rotation", Why: "receivers that have the old secret reject every message",
			In: "Deliverer.open", From: "now.Before(p.Until)", To: "false && now.Before(p.Until)",
			Test: "TestBothSecretsSignDuringARotation",
		},
		{
			Name: "the old secret signs without end", Why: "a secret that was leaked is accepted after its rotation",
			In: "Deliverer.open", From: "now.Before(p.Until)", To: "(true || now.Before(p.Until))",
			Test: "TestBothSecretsSignDuringARotation",
		},
		{
			Name: "an argument in a path can be a dot segment", Why: "a model calls another path of a customer's endpoint than the one that its owner has allowed",
			In: "URL.Fill", From: "case !p.query && leads(value):", To: "case false:",
			Test: "TestAnArgumentLeadsNowhereElse",
		},
		{
			Name: "a call of an HTTP tool is sent again whatever its class", Why: "a customer is charged twice when a connection breaks",
			In: "Tool.Call", From: "(t.repeatable(c) || !a.sent)", To: "true",
			Test: "TestTheClassDecidesAboutRepetition",
		},
		{
			Name: "a webhook that the file does not have any more is kept", Why: "events are sent to a receiver that the operator has removed",
			In: "storeWebhooks", From: "if !w.Declared() {", To: "if !w.Declared() || true {",
			Test: "TestAWebhookOfTheFileReplacesOneOfTheAPI",
		},
	}
}
