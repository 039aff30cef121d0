// Package mcpserver is the gateway as an MCP server: it lists the tools of an org to outside
// MCP clients, and executes their calls.
//
//	POST, GET, DELETE /mcp ─► Handler ─► the official SDK: protocol, sessions, streams
//	                                       │
//	                   tools/list ◄────────┼────────► tools/call
//	                   catalog.For         │          scope ─► rate ─► quota ─► toolexec.Prepare
//	                   within the key      │            ─► audit row ─► toolexec.Execute ─► audit row
//	                                       │
//	change of an org or of a server ─► Changed ─► list_changed, to the sessions whose list differs
//
// It has no rules: which tools a key may use is decided by package catalog, which calls need
// an approval by the policy of the org, and how a call is executed by package toolexec. A
// call here belongs to no run, so nothing waits: a call that needs an approval is refused.
//
// Clients of the revisions until 2025-11-25 have sessions. A session belongs to one key.
// Clients of 2026-07-28 have none: each request stands for itself, and one that listens for
// changes counts as a session while it is open.
package mcpserver
