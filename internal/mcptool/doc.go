// Package mcptool makes the tools of an MCP server callable: a [Client] is a
// source of tools over streamable HTTP.
//
//	Client ── pooled session ──► official SDK: negotiation, ids, protocol headers ─┐
//	   │                         bare: plain tools/list and tools/call ────────────┤
//	   │                                                                           ▼
//	   └──────────── exchange: the raw answer, or what went wrong ◄──────────── transport ──► server
//
// The SDK runs the session; the frames are ours. The transport reads every
// answer itself, finds the one frame that answers the request, keeps it raw for
// the caller and hands the SDK a small, well-formed one. So a server that
// floods, lies about its content type or dies fails its own call and never the
// session that other calls share; and schemas keep the bytes that were sent.
//
//	client := mcptool.New(mcptool.Server{Name: "docs", URL: "https://docs.example.com/mcp"}, guarded, log)
//	defer client.Close()
//	tools, err := client.List(ctx)
//
// A server that refuses initialize but answers tools/list and tools/call is
// spoken to without a session. Nothing that a server names is ever fetched.
package mcptool
