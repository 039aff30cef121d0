// Package sandbox runs code that a model has written. It knows several drivers, each a way to confine
// code, and keeps one interpreter per session, so that variables survive from call to call.
//
//	codetool ── Request ──► Manager ── session (org, key) ──► Interpreter of a Driver
//	                          │ bounds, eviction,               quickjs, wasm   the gateway's own program, as a child
//	                          │ idle time, lost state           bwrap, landlock a program of the host, confined
//	                          ▼                                 remote          a service, by URL
//	                        Outcome: output, result, exit status, what ended the session
//
// A driver is never replaced by a weaker one: [New] chooses a driver for each language once, logs the
// choice, and every Outcome names it. A driver that was chosen and does not work is an error.
//
// No code of a model runs in the process of the gateway. The interpreters are in package child, which
// only child processes execute.
package sandbox
