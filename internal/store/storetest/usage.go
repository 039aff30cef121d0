package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

func usageCases() []rule { // P57
	return []rule{
		{"sums of usage are those of the audit rows", "grouped by anything, over whole days and parts of days", usageSums},
		{"a refused batch adds nothing to the sums", "nor does one whose rows were rolled back", usageOfRefused},
		{"an org has 1,000 models a day", "further names, which clients choose, are one sum", usageModels},
		{"sums outlive their rows", "and are removed by themselves, by the day", usageRetention},
		{"a sum has the agent", "which its rows do not have", usageByAgent},
	}
}

func usagePersistenceCases() []rule {
	return []rule{{"sums and audit rows agree after a crash", "they are written in one transaction", func(b *testBench) {
		b.useUp(400)
		b.Store = b.maker.Crash(b.T, b.Store)
		b.checkUsage(audit.UsageQuery{By: usedBy()})
	}}}
}

const aDay = 24 * 60 * 60 * 1000 // in milliseconds

// usedBy is all that audit rows can be grouped by.
func usedBy() []string {
	return slices.DeleteFunc(audit.UsageGroups(), func(by string) bool { return by == audit.ByAgent })
}

// useUp records n entries of three days and of two orgs, some by batches of runs.
func (b *testBench) useUp(n int) {
	b.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	one := func(prefix string, of int) string { return fmt.Sprint(prefix, random.IntN(of)) }
	a := b.begin("a", "r")
	for i := range n {
		e := audit.Entry{Kind: audit.KindRequest, At: random.Int64N(3 * aDay), Principal: one("key", 3), Body: audit.Request{
			Surface: audit.SurfaceRelay, Via: one("surface", 2), EndUser: one("user", 4), Provider: "p", Model: one("model", 3), Target: one("target", 2),
			Attempts: random.IntN(3), Status: audit.OK, InputTokens: random.Int64N(100), CachedTokens: 3, OutputTokens: 4, ReasoningTokens: 1,
			CostNanoUSD: random.Int64N(100), GPUMS: 2, ToolCalls: random.IntN(3),
			EstimatedInput: random.Int64N(2), EstimatedOutput: random.Int64N(2), EstimatedNanoUSD: random.Int64N(2),
		}}
		switch random.IntN(8) {
		case 0:
			e.Kind, e.Body = audit.KindToolCall, audit.ToolCall{Model: one("model", 3), EndUser: one("user", 4), CostNanoUSD: random.Int64N(3)}
		case 1:
			e.Kind, e.Body = audit.KindMCPCall, audit.MCPCall{CostNanoUSD: random.Int64N(3)}
		case 2:
			e.Kind, e.Body = audit.KindManagement, audit.Management{}
		}
		switch {
		case i%5 == 0:
			b.ok(a.append(b.Context(), journal.Batch{Sync: i%2 == 0, Audit: []audit.Entry{e, e}}, input("x")))
		case i%11 == 0:
			b.record("b", e)
		default:
			b.record("a", e)
		}
	}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true}))
	b.ok(b.Audit.SyncAudit(b.Context()))
}

// checkUsage fails the case unless the org's usage is what its audit rows add up to, and returns it.
func (b *testBench) checkUsage(q audit.UsageQuery) []audit.Usage {
	b.Helper()
	want, err := audit.SumUsage(b.Context(), "a", b.Audit, q)
	b.ok(err)
	got, err := audit.AddUsage(b.Context(), "a", b.Audit, q)
	b.ok(err)
	b.equal(got, want)
	return got
}

func usageSums(b *testBench) {
	checkEmpty(b, b.checkUsage(audit.UsageQuery{}), nil)
	b.useUp(600)
	for _, times := range [][2]int64{
		{0, 0}, {aDay, 0}, {0, aDay}, {aDay, 2 * aDay}, {aDay / 2, 0}, {0, 2*aDay + 1}, {aDay / 2, 2*aDay + aDay/2}, {aDay + 5, aDay + 5 + aDay/3},
		{aDay - 1, aDay}, {aDay - 1, aDay + 1}, {2 * aDay, aDay}, {5 * aDay, 0}, {5*aDay + 1, 6*aDay + 1},
	} {
		for _, by := range [][]string{nil, {audit.ByKey}, {audit.ByDay, audit.ByTarget}, {audit.ByModel, audit.ByEndUser}, usedBy()} {
			b.checkUsage(audit.UsageQuery{From: times[0], To: times[1], By: by})
		}
	}
	if all := b.checkUsage(audit.UsageQuery{}); len(all) != 1 || all[0].Requests < 200 || all[0].ToolNanoUSD == 0 || all[0].EstimatedOutput == 0 {
		b.Errorf("the sum of all is %+v", all)
	}
	if since, err := b.Audit.EstimatedSince(b.Context()); err != nil || since != 0 {
		b.Errorf("estimates are known since %d, %v", since, err)
	}
}

func usageOfRefused(b *testBench) {
	a := b.begin("a", "r")
	a.write(started("0.0", 1))
	entry := audit.Entry{Kind: audit.KindRequest, At: 1, Body: audit.Request{Attempts: 1, Model: "m"}}
	if a.append(b.Context(), journal.Batch{Sync: true, Audit: []audit.Entry{entry}}, started("0.0", 1)) == nil {
		b.Error("a repeated start of a call was accepted")
	}
	checkEmpty(b, b.checkUsage(audit.UsageQuery{}), nil)
}

func usageModels(b *testBench) {
	for i := range audit.MaxUsageModels + 20 {
		for range 2 {
			b.record("a", audit.Entry{Kind: audit.KindRequest, At: 1, Body: audit.Request{Attempts: 1, Model: fmt.Sprint("m", i), Target: fmt.Sprint("m", i), Provider: "p"}})
		}
	}
	b.record("a", audit.Entry{Kind: audit.KindRequest, At: aDay, Body: audit.Request{Attempts: 1, Model: "tomorrow"}})
	b.rows("a", audit.Query{Kind: audit.KindManagement}, 0)
	all, err := audit.AddUsage(b.Context(), "a", b.Audit, audit.UsageQuery{By: []string{audit.ByModel, audit.ByTarget}})
	b.ok(err)
	if len(all) != audit.MaxUsageModels+2 {
		b.Fatalf("%d groups, want those of %d models, of the rest, and of the next day", len(all), audit.MaxUsageModels)
	}
	rest := all[0]
	if names := rest.Rest.Names([]string{audit.ByModel}); rest.Name(audit.ByModel) != "" || rest.Requests != 40 || !slices.Equal(names, []string{audit.ByModel}) {
		b.Errorf("the rest is %+v, with names %q", rest, names)
	}
	all, err = audit.AddUsage(b.Context(), "a", b.Audit, audit.UsageQuery{})
	b.ok(err)
	if len(all) != 1 || all[0].Requests != 2*(audit.MaxUsageModels+20)+1 {
		b.Errorf("the sum of all is %+v", all)
	}
}

func usageRetention(b *testBench) {
	b.useUp(200)
	want := b.checkUsage(audit.UsageQuery{By: usedBy()})
	rows := b.rows("a", audit.Query{Latest: true, Limit: 1}, 1)
	_, err := b.Audit.PruneAudit(b.Context(), audit.Checkpoint{Org: "a", Number: rows[0].Number, Hash: rows[0].Hash, At: 10, Pruned: true}.Sign(signer()))
	b.ok(err)
	got, err := audit.AddUsage(b.Context(), "a", b.Audit, audit.UsageQuery{By: usedBy()})
	b.ok(err)
	b.equal(got, want)
	if _, err := audit.AddUsage(b.Context(), "a", b.Audit, audit.UsageQuery{From: 1}); err == nil {
		b.Error("a part of a day is added up although its rows were deleted")
	}
	other, err := audit.AddUsage(b.Context(), "b", b.Audit, audit.UsageQuery{})
	b.ok(err)
	removed, err := b.Audit.PruneUsage(b.Context(), "a", 2)
	b.ok(err)
	got, err = audit.AddUsage(b.Context(), "a", b.Audit, audit.UsageQuery{By: usedBy()})
	b.ok(err)
	b.equal(got, slices.DeleteFunc(want, func(u audit.Usage) bool { return u.Day < 2 }))
	if removed == 0 {
		b.Error("no sums were removed")
	}
	kept, err := audit.AddUsage(b.Context(), "b", b.Audit, audit.UsageQuery{})
	b.ok(err)
	b.equal(kept, other)
}

func usageByAgent(b *testBench) {
	for _, agent := range []string{"", "agent_1", "agent_2", "agent_1"} {
		b.record("a", audit.Entry{Kind: audit.KindRequest, At: aDay, Body: audit.Request{Attempts: 1, Agent: agent, CacheWriteTokens: 7}})
		b.record("a", audit.Entry{Kind: audit.KindToolCall, At: aDay, Body: audit.ToolCall{CostNanoUSD: 5, Agent: agent}})
	}
	b.rows("a", audit.Query{}, 8)
	got, err := audit.AddUsage(b.Context(), "a", b.Audit, audit.UsageQuery{By: []string{audit.ByAgent}})
	b.ok(err)
	if len(got) != 3 || got[1].Agent != "agent_1" || got[1].Requests != 2 || got[1].ToolNanoUSD != 10 || got[1].CacheWriteTokens != 14 {
		b.Errorf("%+v", got)
	}
	if _, err := audit.AddUsage(b.Context(), "a", b.Audit, audit.UsageQuery{By: []string{audit.ByAgent}, From: aDay + 1}); err == nil {
		b.Error("a part of a day is grouped by agent")
	}
}
