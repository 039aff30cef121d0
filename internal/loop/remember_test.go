package loop

import (
	"fmt"
	"testing"
)

// A decision is remembered for the tool as it is defined, and only for a rule whose calls it may decide. // H11
func TestWhatIsRemembered(t *testing.T) {
	ask := func(asker Asker) func(*State) {
		return func(s *State) {
			s.Calls = []*Call{{Key: "0.0", Wait: &CallWaiting{WaitID: "w"}, Prepared: &CallPrepared{Server: "s", Tool: "t", ToolDigest: "d", Place: "here", Asker: asker}}}
		}
	}
	for _, c := range []struct {
		decided, asks Asker
		tool, digest  string
		want          bool
	}{
		{AskedByServer, AskedByServer, "t", "d", true},
		{AskedByServer, AskedByRequest, "t", "d", true},
		{AskedByRequest, AskedByRequest, "t", "d", true},
		{AskedByRequest, AskedByServer, "t", "d", false},
		{AskedByHook, AskedByServer, "t", "d", false},
		{AskedByServer, AskedByHook, "t", "d", false},
		{AskedByServer, AskedByServer, "other", "d", false},
		{AskedByServer, AskedByServer, "t", "changed", false},
	} {
		var s State
		ask(c.decided)(&s)
		s.remember("w")
		if got := s.Remembers(Remembered{"s", c.tool, c.digest, "here", c.asks}); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	var s State
	ask(AskedByServer)(&s)
	s.remember("w")
	if s.Remembers(Remembered{"s", "t", "d", "there", AskedByServer}) {
		t.Error("a decision is remembered for another place")
	}
	s = State{}
	for i := range 2 * MaxRemembered {
		ask(AskedByServer)(&s)
		s.Calls[0].Prepared.Tool = fmt.Sprint(i)
		s.remember("w")
	}
	if len(s.Remembered) != MaxRemembered || s.Remembered[0].Tool != fmt.Sprint(MaxRemembered) {
		t.Errorf("%d tools are remembered, the first is %s", len(s.Remembered), s.Remembered[0].Tool)
	}
}
