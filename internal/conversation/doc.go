// Package conversation keeps conversations: what a run has added to one, and the conversations that
// clients name.
//
// A [Segment] is what one run adds: its input and its output, stored under an id that follows from that of
// the run. A segment follows another one, or belongs to a named conversation, which is a list of parts:
// segments, and items that a client has added. [Begin] reads what a request continues and returns the
// transcript with which its run begins:
//
//	chain, named conversation, session of an agent ─► history.go   what each turn adds follows from how its run ended: adds.go
//	chat session, whose client sends all again     ─► session.go   the stored items as far as the request agrees with them
//	session of a program that embeds the loop      ─► Past in session.go of the library, which has its own rule
//
// [CheckResults] reads it too, for results that a client sends again. [Rewind] shortens the list of a named
// conversation, and [ForkOf] makes another one of it. [Chains] keeps the sessions of programs, which read them through the library.
//
// Nothing here knows an API. What an API stores beside the items is opaque; its ids, members and objects
// are made by its surface.
package conversation
