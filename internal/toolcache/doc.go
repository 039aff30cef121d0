// Package toolcache caches the results of tool calls. A [Cache] is a run.Cache over a
// [Store].
//
//	Put ─► add MAC ─► pending ─► store, asynchronously
//	                     │          │
//	Get ◄────────────────┴─ check ◄─┘
//
// The store is not trusted. Every entry has a MAC over the call (org, server, tool,
// definition, arguments), the expiry and the result, under a pepper that is not in the
// store. An attacker who can write to the store cannot forge a result, move it to
// another call or org, or extend its lifetime. An entry whose MAC does not match is
// ignored and deleted when it is read. That includes entries of an earlier pepper.
//
//	c := toolcache.New(store, toolcache.Options{Pepper: pepper})
//	c.Put(ctx, key, "42", time.Minute)
//	text, ok := c.Get(ctx, key)
package toolcache
