// Package sse reads and writes server-sent events.
//
// A [Reader] turns a provider's stream into events, whatever its line ends,
// comments and packet cuts are. A [Writer] turns events into an HTTP answer in
// which every event leaves at once and none can be forged by its data:
//
//	provider ── bytes ──► Reader ── Event ──► …a run… ──► Writer ── one write, one flush ──► client
//	                                                        ▲
//	                              Heartbeats ── ": keep-alive" after 15 s of silence
//
// One [Heartbeats] serves all writers of a process from one goroutine.
//
//	w := sse.NewWriter(rw, sse.Options{Heartbeats: beats})
//	defer w.Close()
//	err := w.Event([]byte(`{"text":"hello"}`))
package sse
