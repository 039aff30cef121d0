// Package conformance proves that the official OpenAI clients, OpenAI's Codex and the
// official MCP example servers work with Turnpike as they are, and that the official
// clients of OpenAI, Anthropic and Google agree with the strict fakes of turnpiketest,
// which the adapters are tested against. It is a module of its own, so that the
// gateway never depends on an SDK of a provider.
//
//	cd conformance && npm ci --no-audit --no-fund && go test ./...
//
// Everything in the picture but the model is the real thing; all of it listens
// on 127.0.0.1 and is stopped when the test that started it ends:
//
//	openai for Node ─┐                        ┌─► upstream: a scripted model that
//	                 ├─► turnpike serve ──────┤   computes its answers from what
//	openai for Go ───┘   (built from ..)      │   it is sent and records it all
//	                                          ├─► proxy: counts tools/call, can
//	                                          │   hold one ──► server-everything
//	                                          └─► children over stdin and stdout:
//	                                              server-filesystem, servers/text.mjs,
//	                                              server-everything with a witness
//
// conversation_test.go compares what reaches a provider with and without the
// gateway:
//
//	@anthropic-ai/sdk, @google/genai or openai ───► strict fake of the same API
//	openai for Node ──────► turnpike serve ───────► strict fake of the same API
//
// bedrock_test.go does the same with AWS's client for Go, whose signatures the fake
// verifies.
//
// codex_test.go runs OpenAI's Codex, whose requests for other addresses than the
// gateway's end at a proxy that refuses them:
//
//	codex exec ──► recording proxy ──► turnpike serve ──► strict fake of a provider
//
// The tests skip when node or node_modules is missing; with
// TURNPIKE_TEST_NO_SKIP=1 in the environment they fail instead.
// TURNPIKE_TEST_PROGRAM names a gateway that is already built and saves building
// one.
package conformance
