// Package eventlog makes the events of a run from its facts and the deltas of its model calls,
// gives them positions, and reports them to the run's followers.
//
//	owner:     fact, delta ─► Writer ─┬─► fold ─► event at a position ─► Feed, or a surface
//	follower:  facts, rows ─► reader ─┘                                    │ the latest events
//	                │                                                      ▼
//	             the store ─────────────────────────────────► Report ─► a follower's Sink
//
// The owner and a follower use the same fold: an event has the same bytes and the same position,
// live, followed later, and after a restart. A durable run stores what it emits before it emits
// it, so that a follower that is too far behind for the feed reads the rest in the store.
//
//	fold      fold.go       which event a fact or a delta becomes; failure.go words the end
//	Writer    writer.go     the event log of a run for its owner; it keeps items and arguments
//	reader    reader.go     the event log of a run for a follower; deltas.go and texts.go decode rows
//	Feed      feed.go       the latest events of a run that is performed in this process
//	Report    follow.go     where a follower gets its next event: first the feed, then the store
//	Followers followers.go  the places of followers, and what wakes them
//	partSink  part.go       one part of a run that waited, as if it were the whole
//	Detail    detail.go     what the journal says of a run, for people
//
// The facts themselves, and the ports to the store, are those of package journal. Package run
// writes to the log; this package never asks it.
package eventlog
