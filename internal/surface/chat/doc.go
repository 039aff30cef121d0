// Package chat is the chat-completions surface: it turns a request into a run
// and the run's events into the OpenAI dialect. Package surface does the rest.
//
//	members of the body ─► decode.go: items, tools, options ─► run ─► encode.go ─┬─ one JSON object
//	                                                                             └─ chunks, [DONE]
//
// errors.go has the words of the dialect, wire.go its objects.
package chat
