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
		{"errors raise the client's own classes", testErrors},
		{"a failure in mid-stream raises an error", testBrokenStream},
		{"a client that leaves ends the work", testAbort},
		{"a turn with a gateway's and a client's tool", testMixedTurn},
		{"runTools of the Node client", testRunTools},
		{"stream and parse helpers of the Node client", testHelpers},
		{"characters cut anywhere arrive whole", testUnicode},
	}
	for _, suite := range suites {
		t.Run(suite.name, func(t *testing.T) { suite.run(t, s) })
	}
}
