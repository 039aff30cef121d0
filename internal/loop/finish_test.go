package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

// The rules say what has ended a run, before its last fact is appended and when its
// journal is read back.
func TestFinishCarriesItsCause(t *testing.T) {
	down := Server{Label: "s", Required: true, Error: "down"}
	conflict := Conflict{Tool: "a", Server: "s"}
	exhausted := with(begin(), asked(0, 1), failed(1, model.Transient), asked(0, 2), failed(2, model.Transient), asked(0, 3), failed(3, model.Transient))
	withoutLabel := Server{Required: true, Error: "down"}
	deaths := func(a *Accepted) { a.Grade, a.Rules = Durable, Rules{DeadOwnersPerCall: 1} }
	for name, tt := range map[string]struct {
		facts []Body
		want  Finish
	}{
		"an answer has no other cause": {with(begin(), asked(0, 1), turn(0, model.StopEnd)), Finish{Reason: event.Complete}},
		"the first required server that is down": {[]Body{accepted(), catalogued(Server{Label: "optional", Error: "down"}, down, Server{Label: "later", Required: true, Error: "down"})},
			Finish{Reason: event.ServerUnavailable, Cause: Cause{Server: "s"}}},
		"a required server without a label":        {[]Body{accepted(), catalogued(withoutLabel)}, Finish{Reason: event.ServerUnavailable}},
		"the tool with the name of a gateway tool": {[]Body{accepted(), Catalogued{Conflict: &conflict}}, Finish{Reason: event.Invalid, Cause: Cause{Conflict: &conflict}}},
		"the forced tool that does not exist":      {[]Body{accepted(), Catalogued{Missing: "a"}}, Finish{Reason: event.Invalid, Cause: Cause{MissingTool: "a"}}},
		"the first tool that failed": {with(begin(abortOnTool), asked(0, 1), turn(0, model.StopCalls, "a", "b", "c"), prepared("0.0"), prepared("0.1"), prepared("0.2"),
			started("0.0"), started("0.1"), started("0.2"), errored("0.2"), errored("0.1"), done("0.0")),
			Finish{Reason: event.ToolAbort, Cause: Cause{Call: "0.1"}}},
		"the call that owners died of": {with(begin(deaths), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1", reads),
			started("0.1"), Resumed{}, CallDone{Key: "0.1", Attempt: 1, Outcome: Error, ResultRef: "r"}, answered("0.0", NotRun)),
			Finish{Reason: event.Lost, Cause: Cause{Call: "0.1"}}},
		"the provider, after all attempts": {exhausted, Finish{Reason: event.ModelError, Cause: Cause{Provider: "up", Exhausted: true}}},
		"the provider of the first target that was tried": {with(begin(twoTargets), routed(0, 0, 0, 1), asked(0, 1), failed(1, model.Target), routed(0, 1, 1), askedOf(1, 0, 2), failed(2, model.Invalid)),
			Finish{Reason: event.ModelError, Cause: Cause{Provider: "up"}}},
		"the provider of a prompt that is too long": {with(begin(), asked(0, 1), failed(1, model.TooLong)), Finish{Reason: event.TooLong, Cause: Cause{Provider: "up"}}},
		"the credential that the provider refuses": {with(begin(), asked(0, 1), TurnFailed{Attempt: 1, Class: model.Target, Status: 401, Credential: true}),
			Finish{Reason: event.ModelError, Cause: Cause{Provider: "up", Credential: true}}},
		"the member of the request that cannot be sent": {with(begin(), asked(0, 1), TurnFailed{Attempt: 1, Class: model.Invalid, Param: "seed"}),
			Finish{Reason: event.ModelError, Cause: Cause{Provider: "up", Param: "seed"}}},
		"the memory limit": {with(begin(), CancelRequested{Cause: event.Memory, Code: "org_memory_exceeded", Detail: "full"}, CancelRequested{Cause: event.Cancelled}),
			Finish{Reason: event.Memory, Cause: Cause{MemoryLimit: "org_memory_exceeded", Detail: "full"}}},
		"no memory limit of a run that was cancelled before": {with(begin(), CancelRequested{Cause: event.Cancelled}, CancelRequested{Cause: event.Memory, Code: "c", Detail: "full"}),
			Finish{Reason: event.Cancelled}},
		"the caller's calls": {with(oneTurn("a", "yours", "mine"), prepared("0.0"), prepared("0.1", clients), prepared("0.2", clients), started("0.0"), done("0.0")),
			Finish{Reason: event.ClientCalls, HandOver: []CallKey{"0.1", "0.2"}}},
		"the calls of a cut answer of a translated relay": {[]Body{accepted(translated), asked(0, 1), turn(0, model.StopLength, "a", "b…")},
			Finish{Reason: event.OutputCut, HandOver: []CallKey{"0.0"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			if diff := cmp.Diff(Action(tt.want), Decide(s)); diff != "" {
				t.Errorf("before the end (-want +got):\n%s", diff)
			}
			s = play(t, with(tt.facts, Finished{Reason: tt.want.Reason})...)
			if diff := cmp.Diff(tt.want.Cause, s.Cause()); diff != "" {
				t.Errorf("after the end (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTheCodeFollowsFromTheCause(t *testing.T) {
	for _, tt := range []struct {
		reason event.Reason
		cause  Cause
		want   string
	}{
		{event.Complete, Cause{}, ""},
		{event.Deadline, Cause{}, ""},
		{event.Invalid, Cause{Conflict: &Conflict{}}, "tool_name_conflict"},
		{event.Invalid, Cause{MissingTool: "a"}, CodeToolChoice},
		{event.ModelError, Cause{}, "model_error"},
		{event.ModelError, Cause{Param: "seed"}, "unsupported_value"},
		{event.ModelError, Cause{Credential: true, Param: "seed"}, "upstream_credential_refused"},
		{event.TooLong, Cause{}, "context_length_exceeded"},
		{event.Blocked, Cause{}, "outbound_ssrf_blocked"},
		{event.ServerUnavailable, Cause{}, "server_unavailable"},
		{event.ToolAbort, Cause{}, "tool_failed"},
		{event.Memory, Cause{}, "run_memory_exceeded"},
		{event.Memory, Cause{MemoryLimit: "org_memory_exceeded"}, "org_memory_exceeded"},
		{event.Lost, Cause{}, "run_lost"},
		{event.Cancelled, Cause{}, "cancelled"},
		{event.CallerGone, Cause{}, "caller_gone"},
	} {
		if got := tt.cause.Code(tt.reason); got != tt.want {
			t.Errorf("%s %+v: %q, want %q", tt.reason, tt.cause, got, tt.want)
		}
	}
}
