// Package mcptool makes the tools of an MCP server callable: a [Client] is a
// source of tools over streamable HTTP, over the event stream of revision
// 2024-11-05, or over the standard input and output of a child process.
//
//	Client ── pooled session ──► official SDK: negotiation, ids, protocol headers ─┐
//	   │                         bare: plain tools/list and tools/call ────────────┤
//	   │                                                                           ▼
//	   │                                  streamable HTTP, bare: transport ──► server
//	   │                        one stream for all: link ─┬─ eventWire ──────► server
//	   │                                                  └─ stdioWire ──────► child
//	   └──────────── exchange: the raw answer, or what went wrong ◄── transport or link
//
// The SDK runs the session; the frames are ours. transport and link read every
// answer themselves, find the one frame that answers the request, keep it raw
// for the caller and hand the SDK a small, well-formed one. So a server that
// floods, lies about its content type or dies fails its own call and not the
// session that other calls share, as far as the server leaves one; and schemas
// keep the bytes that were sent.
//
//	client := mcptool.New(mcptool.Server{Name: "docs", URL: "https://docs.example.com/mcp"}, guarded, log)
//	defer client.Close()
//	tools, err := client.List(ctx)
//
// A URL is tried with streamable HTTP, then, where the server answers that it
// knows none, as an event stream, and last without a session: with servers that
// refuse initialize and answer tools/list and tools/call. What was found is kept.
// Nothing that a server names is ever fetched, but for the endpoint of an event
// stream, which must be of the same origin.
//
// A child that dies fails the calls under way, which are told its exit status,
// and is started again for the next request; [Client.Close] leaves no process
// behind. [Server.OnListChanged] hears when the tools of a server change.
package mcptool
