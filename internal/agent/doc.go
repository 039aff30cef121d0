// Package agent says what an agent is and how it is stored. An agent is a model with a system
// prompt, settings, MCP servers and hooks, which an org has under a name.
//
//	Definition ── Check ──► Agent (version 1, 2, 3 …) ── Resolve ──► Snapshot
//	 from a request          a Store keeps the latest                 what one run does,
//	 or from the file        version and some before it               with all defaults filled in
//
// Every change of a definition makes a new version, and no version ever changes. Archiving and
// deleting are two things: an archived agent keeps its name and its versions and can be used again.
//
// The package contains no decision about a run. A run of an agent uses it like this:
//
//	a, err := store.Agent(ctx, orgID, agentID)
//	snap, err := a.Resolve(agent.DefaultsOf(runtime.Agents), tools)   // an error if this build cannot run it
//	… store snap with the session, and its Agent, Version and Digest with the run …
//	… snap.Hooks in their order; snap.Servers, of which each run lists the tools …
//
// A [Session] is a conversation of an agent. Each turn of it is a durable run, which the store makes the next
// turn, with the input that it gets, in the transaction that accepts it.
//
// A session that follows its agent resolves it again before each turn. A pinned one uses the
// snapshot that it has stored, so that versions may be deleted without harm to it.
package agent
