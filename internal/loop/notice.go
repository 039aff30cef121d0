package loop

import "github.com/turnpike-gateway/turnpike/event"

// Notice is what the webhooks of a run's org are told of a fact.
type Notice struct {
	Event string // such as response.completed

	// Response says that the notice is about the response of the run, of which Part is the part,
	// from 0. Otherwise it is about the run.
	Response bool
	Part     int
}

// responsesSurface is the name of the surface whose runs have responses.
const responsesSurface = "responses"

// NoticeOf returns the notice of a fact, and false if there is none. s is the state after the fact.
//
// The end of a run has a notice if its response can be read afterwards, and if nobody had to stay
// connected for it: the run is durable, and its response is stored. When a run begins to wait, there
// is always one: a person has to act.
func NoticeOf(s State, f Fact) (Notice, bool) {
	_, parked := f.Body.(Parked)
	paused, is := f.Body.(Paused)
	if parked || is && paused.Refused == "" {
		return Notice{Event: "run.waiting"}, true
	}
	end, ended := f.Body.(Finished)
	if a := s.Accepted; !ended || a == nil || a.Surface != responsesSurface || a.NoStore || s.Grade != Durable {
		return Notice{}, false
	}
	return Notice{Event: "response." + ResponseStatus(end.Reason), Response: true, Part: s.Parks}, true
}

// ResponseStatus returns the status of the response of a run that has ended: completed, incomplete,
// failed or cancelled.
func ResponseStatus(r event.Reason) string {
	switch {
	case r == event.Cancelled || r == event.CallerGone:
		return "cancelled"
	case r.Failed():
		return "failed"
	case r == event.Complete || r == event.ClientCalls || r == event.MaxCalls:
		return "completed"
	}
	return "incomplete"
}

// HooksAfter returns the hooks that are told of a fact: of the end of a run that is complete. What they answer
// changes nothing. s is the state after the fact.
func HooksAfter(s State, f Fact) []Hook {
	end, ended := f.Body.(Finished)
	if !ended || end.Reason != event.Complete || s.Accepted == nil || s.relays() {
		return nil
	}
	return s.hooksOf(OnRunComplete)
}
