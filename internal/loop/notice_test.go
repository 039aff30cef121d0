package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
)

// L10. Webhooks are told of the end of a run whose response is stored and for which nobody had to stay
// connected, and of every run that begins to wait.
func TestNotices(t *testing.T) {
	responses := func(a *Accepted) { a.Surface, a.Grade = "responses", Durable }
	light := func(a *Accepted) { a.Surface, a.Grade = "responses", Light }
	unstored := func(a *Accepted) { responses(a); a.NoStore = true }
	relayed := func(a *Accepted) { a.Surface, a.Grade = "responses", Relay }
	chat := func(a *Accepted) { a.Grade = Durable }
	ends := Finished{Reason: event.Complete}
	for name, tt := range map[string]struct {
		accepted func(*Accepted)
		before   []Body
		last     Body
		want     Notice
	}{
		"a stored durable response":          {responses, nil, ends, Notice{Event: "response.completed", Response: true}},
		"one that failed":                    {responses, nil, Finished{Reason: event.ModelError}, Notice{Event: "response.failed", Response: true}},
		"one that was cancelled":             {responses, nil, Finished{Reason: event.Cancelled}, Notice{Event: "response.cancelled", Response: true}},
		"one that a limit cut off":           {responses, nil, Finished{Reason: event.MaxRounds}, Notice{Event: "response.incomplete", Response: true}},
		"one whose client waits for it":      {light, nil, ends, Notice{}},
		"one that is not stored":             {unstored, nil, ends, Notice{}},
		"a relay":                            {relayed, nil, ends, Notice{}},
		"a run of the chat API":              {chat, nil, ends, Notice{}},
		"a run that waits":                   {chat, nil, Parked{}, Notice{Event: "run.waiting"}},
		"a run that waits at a limit":        {chat, nil, Paused{WaitID: "w"}, Notice{Event: "run.waiting"}},
		"a run that may not wait there":      {chat, nil, Paused{Refused: "too many"}, Notice{}},
		"a light run that waits":             {light, nil, Parked{}, Notice{Event: "run.waiting"}},
		"a response after its run waited":    {responses, []Body{Parked{}, Resumed{}}, ends, Notice{Event: "response.completed", Response: true, Part: 1}},
		"a light run is durable once parked": {light, []Body{Parked{}, Resumed{}}, ends, Notice{Event: "response.completed", Response: true, Part: 1}},
		"another fact":                       {responses, nil, CancelRequested{Cause: event.Cancelled}, Notice{}},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			bodies := append([]Body{accepted(tt.accepted)}, append(tt.before, tt.last)...)
			var got Notice
			var told bool
			for i, b := range bodies {
				f := Fact{Seq: int64(i + 1), At: int64(i), Version: Version, Body: b}
				s = Apply(s, f)
				got, told = NoticeOf(s, f)
			}
			if got != tt.want || told != (tt.want != Notice{}) {
				t.Errorf("notice %+v, %t, want %+v", got, told, tt.want)
			}
		})
	}
}

// Hooks at OnRunComplete are told of a run that is complete, of no other end, and of no relay. They never run
// in the run. // H14 H15
func TestHooksAfterARun(t *testing.T) {
	hooked := func(g Grade) func(*Accepted) {
		return func(a *Accepted) {
			a.Grade = g
			a.Hooks = []Hook{{ID: "start", Point: OnRunStart, Type: HookHTTP}, {ID: "one", Point: OnRunComplete, Type: HookHTTP}, {ID: "two", Point: OnRunComplete, Type: HookHTTP}}
		}
	}
	for _, g := range []Grade{Light, Durable, Relay} {
		for _, r := range event.Reasons() {
			s := Apply(State{}, Fact{Seq: 1, Version: Version, Body: accepted(hooked(g))})
			if due := s.HooksDue(OnRunComplete, ""); due != nil {
				t.Errorf("%s: %v are due", g, due)
			}
			f := Fact{Seq: 2, Version: Version, Body: Finished{Reason: r}}
			var got []string
			for _, h := range HooksAfter(Apply(s, f), f) {
				got = append(got, h.ID)
			}
			if want := g != Relay && r == event.Complete; want != (len(got) == 2 && got[0] == "one" && got[1] == "two") || !want && got != nil {
				t.Errorf("a %s run that ends with %s tells %q", g, r, got)
			}
		}
		if got := HooksAfter(State{}, Fact{Seq: 1, Version: Version, Body: accepted(hooked(g))}); got != nil {
			t.Errorf("the beginning tells %v", got)
		}
	}
	for _, v := range []HookVerdict{HookDeny, HookModify, HookAsk} {
		if v.KnownAt(OnRunComplete) {
			t.Errorf("%s is known there", v)
		}
	}
}
