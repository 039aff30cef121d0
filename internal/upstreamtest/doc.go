// Package upstreamtest has a fake provider that plays the stories of package turnpiketest
// over HTTP, and free ports.
//
//	story ─► turnpiketest.Script ─► Upstream ─► POST /v1/chat/completions, /v1/messages and
//	                                            /v1/responses on 127.0.0.1, and Bedrock's
//	                                            /model/ID/converse-stream
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
// An Upstream listens on 127.0.0.1 and is stopped by Close:
//
//	upstream := upstreamtest.New(script, upstreamtest.Options{})
//	t.Cleanup(upstream.Close)
package upstreamtest
