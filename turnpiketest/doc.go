// Package turnpiketest has what a test of an agent needs: a model that says what
// a story tells it to, tools and MCP servers that behave, misbehave and remember,
// and golden files.
//
//	story ─► Script ──────────────► model.Model, in the same process
//	Tool ──► Source ──────────────► tool.Source, in the same process
//	  └────► MCPServer ───────────► streamable HTTP on 127.0.0.1
//
// A story is a list of turns, parted by empty lines. Each turn answers one model
// call; its lines are played in order:
//
//	text Looking it up.
//	call c1 search {"q":"go"}
//
//	wait 20ms
//	text Go is a language.
//	usage 120 8
//
// The lines are:
//
//	text WORDS            visible text; each line is one delta
//	reasoning WORDS       readable reasoning
//	refusal WORDS         a piece of a refusal
//	call ID NAME {json}   a tool call; ID - is an empty one, the arguments may be no JSON
//	stop REASON           how the turn ends: stop, tool_calls, length, content_filter
//	usage IN OUT          the tokens of the turn
//	wait DURATION         nothing happens for a while
//	fail STATUS [retry-after SECONDS] [WORDS]   the provider's error answer
//	cut                   the stream breaks off here
//	hang                  nothing more comes until the caller leaves
//	again [N]             this turn answers N more calls; without N, all that follow
//	# WORDS               nothing
//
// WORDS are taken as they stand after one space; words in double quotes are
// unquoted as in Go, for line ends and leading spaces. A turn without a stop
// line ends with tool_calls if it has calls, else with stop. A call is complete
// when the next one began or the turn ended, as in the chat dialect: one that
// the stream was cut after is not, nor is the last one of a turn that its
// length ended.
//
// Everything that listens does so on 127.0.0.1 and is stopped by Close:
//
//	server := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "now", Result: "noon"})
//	t.Cleanup(server.Close)
package turnpiketest
