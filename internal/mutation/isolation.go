package main

// isolationMutations are mistakes with which one customer sees, or one key does, what is another's.
func isolationMutations() []mutation {
	return []mutation{
		{
			Name: "a session is continued by any agent", Why: "a conversation goes on with the tools and the prompt of another agent",
			In: "runs.sessionOf", From: "(s.Agent != a.ID || !s.Continues(caller.Principal))", To: "!s.Continues(caller.Principal)",
			Test: "TestWrongCombinationsInAnOrgDoNotExist",
		},
		{
			Name: "an approval is decided through any run", Why: "who approves a harmless call of one run approves a dangerous one of another",
			In: "runs.approvalOf", From: "(a.RunID != runID || a.IsPause())", To: "a.IsPause()",
			Test: "TestWrongCombinationsInAnOrgDoNotExist",
		},
		{
			Name: "the running runs of a revoked key go on", Why: "a stolen key works until its model and tools have answered",
			In: "audience.endAbandoned", From: "u.leases.endOf(u.o.Gone)", To: "_ = u.leases",
			Test: "TestARevokedKeyEndsTheRunsOfItsSessions",
		},
		{
			Name: "the error of a hook has the URL of its redirect", Why: "a receiver that redirects with its credential in the URL has it written to the log",
			In: "Sender.send", From: "err = wrapped.Err", To: "_ = wrapped.Err",
			Test: "TestNoSecretOfAnAgentComesOut",
		},
		{
			Name: "the setting COMPACTION_MODEL is ignored", Why: "an org pays for summaries with the expensive model of its agent",
			In: "OfAgent", From: "rt.CompactionModel = cmp.Or(a.Summary, rt.CompactionModel)", To: "rt.CompactionModel = cmp.Or(rt.CompactionModel)",
			Test: "TestASettingNamesTheModelOfSummaries",
		},
	}
}
