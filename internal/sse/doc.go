// Package sse reads and writes server-sent events.
//
// A [Reader] parses a provider's stream. Its events do not depend on line endings or on
// how the bytes are split. A [Writer] writes events to an HTTP response. It flushes each
// event immediately, and event data cannot inject fields or events:
//
//	provider ── bytes ──► Reader ── Event ──► …a run… ──► Writer ── one write, one flush ──► client
//	                                                        ▲
//	                              Heartbeats ── ": keep-alive" after 10 s of silence
//
// One [Heartbeats] serves all writers of a process with one goroutine.
//
//	w := sse.NewWriter(rw, sse.Options{Heartbeats: beats})
//	defer w.Close()
//	err := w.Event([]byte(`{"text":"hello"}`))
package sse
