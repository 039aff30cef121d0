// Package turnpiketest has what a test of an agent needs: a model that says what
// a story tells it to, a provider that says the same over HTTP, tools and MCP
// servers that behave, misbehave and remember, and golden files.
//
//	story ─► Script ──────────────► model.Model, in the same process
//	           └──► Upstream ─────► POST /v1/chat/completions, /v1/messages and
//	                                /v1/responses on 127.0.0.1, and Bedrock's
//	                                /model/ID/converse-stream
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
// An Upstream says the same in each dialect by the dialect's own means:
//
//	            Chat Completions     Messages                  Responses
//	text        content              text block                output_text
//	reasoning   reasoning_content    thinking with signature   reasoning with summary
//	refusal     refusal              text, stop_reason refusal refusal
//	fail later  error object         event error               response.failed
//
// Bedrock Converse says what Messages says: reasoningContent, text with stopReason
// content_filtered, and an exception.
//
// Lines of reasoning that follow each other are one block or item. A line of
// reasoning without words is reasoning that the provider hides: in Messages a
// redacted_thinking block, in Responses an item without a summary. Reasoning in
// Responses has encrypted_content where the request's include asks for it.
//
// Everything that listens does so on 127.0.0.1 and is stopped by Close:
//
//	upstream := turnpiketest.NewUpstream(script, turnpiketest.UpstreamOptions{})
//	t.Cleanup(upstream.Close)
package turnpiketest
