// Package surfacetest runs stories over all surfaces. It holds no code of the
// gateway: a story is one file of testdata, and one table test plays them all.
//
//	testdata/*.txtar ─► state, tools, model ─► real runner, real surface ─► goldens
//
// A story is a sentence and these parts; only the model is required:
//
//	-- state --           what differs from the defaults, one "key value" a line
//	-- request --         members of the chat request, in JSON; default: a user says hi
//	-- model --           the model's turns, in the words of package turnpiketest
//	-- fallback model --  those of a second provider of the same model
//	-- tools --           one tool a line: NAME words {schema} => result; the word files gives a result that is JSON
//	                      as structured content, and that of code_execute as its typed value
//	-- second request --  the same conversation again, with other members
//
// followed by what came of it, which -update rewrites:
//
//	-- prompts --    what each model call was asked: tools, choice, what is new in the transcript
//	-- events --     what the run reported, each with the time since the request
//	-- chat.json --  status, header and body of the answer to a request without stream
//	-- chat.sse --   the bytes of the answer to a request with stream
//
// prompts and events are those of the streamed request. Where the other one has
// its own, they stand in prompts.json and events.json. What belongs to the
// second request has "second" before its name.
//
// The keys of state:
//
//	max_rounds, max_calls, deadline, stream_mode, tool_parallelism, doom_loop, doom_threshold,
//	tool_error_mode, on_limit, tool_arg_validation, tool_result_max_bytes,
//	extensions A,B, enable_search, enable_code_execution, max_tool_rounds N
//	                          as in an org's runtime
//	max_rounds_cap N          the operator's own
//	role ROLE                 of the caller; default member
//	server NAME words         a server, in configuration order; the words are down, required,
//	                          blocked=REASON, naming=HOW, prefix=P, tools=A,B and polling=A,B;
//	                          builtin_tools has the tools that switches offer
//	leave DURATION            the client leaves so long after its request
//	unplug N                  the connection takes N frames and no more
//	second_principal NAME     who sends the second request
//	differ WHY                stream and JSON end differently here, and why that is right
//	open WHY                  the goldens are written by hand and say what should come; the story
//	                          is skipped as long as something else does, and fails afterwards
//	race WHY                  the gateway has a data race here: skipped under the race detector
//
// The words of a tool are read (it only reads), server=NAME, after DURATION,
// hang and panic. Its result is a text, or "error TEXT" (the tool's own failure),
// "fail TEXT" (the transport's, after the call may have left), "blocked REASON
// ADDRESS" (the outbound policy's, before the call left) or "repeat N TEXT"; {n} in it is the number of the call and {args} are its
// arguments.
//
// The stories run in a testing/synctest bubble, so that waiting costs nothing and
// the order of events is always the same. Calls of one turn that take equally
// long end in their order.
package surfacetest
