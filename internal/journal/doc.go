// Package journal defines what is stored of runs, and the rules that every store keeps.
//
//	Append ──┐  Head         who may write: fenced by epoch, in order; what the run has come to
//	         ├─ Opening      whether a run is accepted: its key, the org's slots and caps
//	         ├─ Batch        facts and rows of one append, with holds and audit rows
//	         └─ Approval     what waits for a person, as the facts say
//	Save ────── Conversation what callers do not send again: handovers, responses, sessions
//
// The rules are pure: a store reads the head, asks it, and writes what it returns in one
// transaction. Stores implement the ports [Journal], [Archive], [Leases], [Conversations],
// [LaterDeleter] and [Recorder]; package store/storetest tests them. Package run performs runs with
// them.
package journal
