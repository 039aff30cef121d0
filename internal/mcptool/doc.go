// Package mcptool makes the tools of an MCP server callable: a [Client] is a
// source of tools over streamable HTTP, over the event stream of revision
// 2024-11-05, or over the standard input and output of a child process.
//
//	Client ── pooled session ──► official SDK: negotiation, discovery, calls on one stream ─┐
//	   │                         poster: calls over HTTP; a server without initialize ──────┤
//	   │                                                                                    ▼
//	   │                                       HTTP, one POST each: transport ──► server
//	   │                        one stream for all: link ─┬─ eventWire ─────────► server
//	   │                                                  └─ stdioWire ─────────► child
//	   └──────────── exchange: the raw answer, or what went wrong ◄── transport or link
//
// The SDK makes the session. transport and link read every answer themselves: they find the
// message that answers the request, keep its bytes for the caller, and give the SDK a small,
// well-formed message instead. They also answer what a server asks: its pings. So a server that sends too much, sends a wrong content type or
// breaks a connection fails one call and not the session that other calls share. Schemas keep
// the bytes that the server sent.
//
//	client := mcptool.New(mcptool.Server{Name: "docs", URL: "https://docs.example.com/mcp"}, guarded, log)
//	defer client.Close()
//	tools, err := client.List(ctx)
//
// The client tries a URL with streamable HTTP first, then with legacy SSE if the answer is one of
// an older server, and last without a session if the server refuses initialize. Later handshakes
// use what worked. The client never fetches a URL that a server sends, except the endpoint of
// legacy SSE, which must have the same origin.
//
// If a child process ends, the calls in progress fail with its exit status, and the next request
// starts it again. [Client.Close] ends the process. [Server.OnListChanged] is called when the
// tools of a server change.
package mcptool
