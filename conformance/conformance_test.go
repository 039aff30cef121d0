package conformance

import "testing"

// TestConformance runs the official clients against the gateway.
func TestConformance(t *testing.T) { // P12
	s := newSite(t)
	s.buildGateway(t)
	suites := []struct {
		name string
		run  func(t *testing.T, s *site)
	}{
		{"a question that needs two tools", testTwoToolRounds},
		{"text of round 0 arrives before its tool has answered", testLiveText},
		{"the loop switched off leaves every byte alone", testRelay},
		{"the relay is byte-equal both ways", testRelayBytes},
		{"with the loop off, a provider of another dialect looks like OpenAI", testTranslatedRelay},
		{"the same conversation in every dialect", testConversations},
		{"errors of every dialect", testDialectErrors},
		{"the list of models", testModels},
		{"errors raise the client's own classes", testErrors},
		{"a failure in mid-stream raises an error", testBrokenStream},
		{"a client that leaves ends the work", testAbort},
		{"a turn with a gateway's and a client's tool", testMixedTurn},
		{"runTools of the Node client", testRunTools},
		{"a restart between the halves of a mixed turn", testRestart},
		{"two calls of the client's tools in one turn", testParallelClientTools},
		{"stream and parse helpers of the Node client", testHelpers},
		{"a session of chat", testChatSession},
		{"pictures reach the model as they are", testImages},
		{"a result of 10 MiB", testLongResult},
		{"a long result of a mixed turn is readable after a restart", testLongMixedTurn},
		{"server-filesystem over standard input", testFilesystem},
		{"a stdio server that is killed in mid-call", testKilledChild},
		{"a server of the management API", testManagement},
		{"a call that was made is not made again", testCached},
		{"the commands runs list and runs show", testRuns},
		{"the commands mcp list and mcp check", testCheck},
		{"characters cut anywhere arrive whole", testUnicode},
		{"the Responses API of the Node client", testResponses},
		{"code of the Responses API, Node client", testCode},
		{"files that code has made, Node client", testFiles},
		{"search, code and files, AI SDK", testAISDK},
		{"embeddings, pictures, speech and moderations", testEndpoints},
		{"the MCP Inspector at /mcp", testInspector},
		{"Codex", testCodex},
		{"Codex, with a small context window", testCodexCompacts},
		{"compaction, Node client", testCompactEndpoint},
	}
	for _, suite := range suites {
		t.Run(suite.name, func(t *testing.T) { suite.run(t, s) })
	}
}
