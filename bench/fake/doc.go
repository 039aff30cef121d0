// Package fake holds what stands around the measured proxy: the servers that
// it talks to, and the reverse proxy that it is compared with. Each runs as a
// process of its own, so that its CPU is not the proxy's.
//
//	relay cases   client ──► [Baseline] or gateway ──► [Upstream]
//	loop case     client ──► gateway ──┬──► [ScriptedModel]  20 ms a call, its turns written by the client
//	                                   └──► [SlowTool]       MCP, sleeps as long as it is told, notes when
//
// The two servers of the loop keep ledgers of what they saw; the client takes
// them after each run and judges them.
package fake
