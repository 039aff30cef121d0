// Package toolcache keeps what tools have answered, for when the same call is
// made again. It is a run.Cache over a [Store].
//
//	Put ─► seal ─► waiting ─► store, when there is time
//	                  │          │
//	Get ◄─────────────┴── seal? ◄┘
//
// What the store returns is not believed. Every entry carries a MAC over the
// whole call (org, server, tool, definition, arguments), the end of its time and
// the result, under a pepper that the store does not have. Whoever can write to
// the store can therefore neither make up a result, nor move one to another call
// or org, nor make one last longer: such an entry is none, and is dropped when it
// is met. So is one that was sealed with an earlier pepper.
//
//	c := toolcache.New(store, toolcache.Options{Pepper: pepper})
//	c.Put(ctx, key, "42", time.Minute)
//	text, ok := c.Get(ctx, key)
package toolcache
