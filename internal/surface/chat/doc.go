// Package chat is the chat-completions surface: it turns a request into a run
// and the run's events into the OpenAI dialect. It decides nothing.
//
//	body ─► scan ─┬─ loop off ─► relay: the same bytes        ─► relay.go
//	              └─ loop on ──► decode: items, tools, options ─► run ─┬─ collect.go  one JSON object
//	                                                                    └─ encode.go   chunks, [DONE]
package chat

// Dialect names the wire format in items, parameters and providers.
const Dialect = "openai-chat"
