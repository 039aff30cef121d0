// Package header decides which fields of a client's request may reach a provider when
// the request is relayed.
//
//	OwnHop   ──► never: credentials for the gateway, its switches, what describes one connection
//	Usual    ──► always: what the official clients of OpenAI and Codex send
//	the rest ──► only to a provider that names them (relay_headers)
//
// Names are in the canonical form of net/http.
package header

import "strings"

// OwnHop reports whether a field must not reach a provider, whatever its settings:
// credentials for us, switches for us, what describes this connection, and what would
// tell the provider about our network.
func OwnHop(name string) bool {
	switch name {
	case "Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key",
		"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Content-Length", "Host", "Expect", "Forwarded", "Via", "X-Real-Ip":
		return true
	}
	return strings.HasPrefix(name, "Turnpike-") || strings.HasPrefix(name, "Floopy-") ||
		strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "Proxy-")
}

// Usual reports whether a field reaches every provider: it is one of those that OpenAI's
// clients for Node and Python and Codex send, beside their credentials.
func Usual(name string) bool {
	switch name {
	case "Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "User-Agent",
		"Sec-Fetch-Mode", // of fetch in Node
		"Idempotency-Key", "Openai-Beta", "Traceparent", "Tracestate",
		"Originator", "Session-Id", "Thread-Id", "X-Client-Request-Id", // of Codex, as all below
		"Session_id", "Conversation_id", "X-Openai-Subagent", "X-Responsesapi-Include-Timing-Metrics":
		return true
	}
	return strings.HasPrefix(name, "X-Stainless-") || strings.HasPrefix(name, "X-Codex-")
}

// Credential reports whether a field carries a credential of one of the APIs that the
// gateway calls. It is the gateway that sends these.
func Credential(name string) bool {
	switch name {
	case "Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "Api-Key", "X-Goog-Api-Key":
		return true
	}
	return strings.HasPrefix(name, "X-Amz-")
}
