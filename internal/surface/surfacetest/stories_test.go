package surfacetest

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) {
	turnpiketest.UpdateFlag()
	goleak.VerifyTestMain(m)
}

// TestStories plays every story on every surface, in both forms.
func TestStories(t *testing.T) {
	stories, err := readStories()
	if err != nil {
		t.Fatal(err)
	}
	specs := spectest.Find(t) // the goldens are checked in specs_test.go
	for _, s := range stories {
		t.Run(s.name(), func(t *testing.T) {
			if s.race != "" && raceDetector {
				t.Skipf("open: a data race: %s", s.race)
			}
			var parts []part
			played := map[string][][2]performance{} // by API: of each request, as JSON and as a stream
			for _, a := range s.playedOn() {
				whole, streamed := play(t, s, a, asJSON), play(t, s, a, asStream)
				for i := range whole {
					checkRun(t, whole[i])
					checkRun(t, streamed[i])
					for _, p := range []performance{whole[i], streamed[i]} {
						if p.stored != nil {
							specs.Check(t, "the stored answer", p.stored.body())
						}
					}
					a.check(t, streamed[i])
					if s.differ == "" {
						a.agree(t, whole[i], streamed[i])
					}
					played[a.name] = append(played[a.name], [2]performance{whole[i], streamed[i]})
				}
			}
			for i := range 2 {
				parts = append(parts, goldens([]string{"", "second "}[i], func(api string) (whole, streamed performance, ok bool) {
					if i >= len(played[api]) {
						return whole, streamed, false
					}
					return played[api][i][0], played[api][i][1], true
				})...)
			}
			got := s.with(parts, isGolden).format()
			if s.open != "" {
				stillOpen(t, s, string(got))
				return
			}
			turnpiketest.Golden(t, s.path, got)
		})
	}
}

// stillOpen holds a story that is known to go wrong against goldens that were
// written by hand. The day it goes right, its mark must go.
func stillOpen(t *testing.T, s *story, got string) {
	t.Helper()
	d := turnpiketest.Diff(string(s.format()), got)
	if d == "" {
		t.Errorf("%s goes right now: take the line \"open\" out of its state", s.path)
		return
	}
	t.Skipf("open: %s\n%s", s.open, d)
}

// goldens are what a story shows of one request. The prompts and events are those of the
// first API as a stream; where others differ, they have their own.
func goldens(prefix string, played func(api string) (whole, streamed performance, ok bool)) (parts []part) {
	shown := map[string]string{}
	show := func(kind, suffix, text string) {
		if have, ok := shown[kind]; ok && have == text {
			return
		} else if !ok {
			suffix, shown[kind] = "", text
		}
		parts = append(parts, part{prefix + kind + suffix, text})
	}
	for _, a := range apis {
		whole, streamed, ok := played(a.name)
		if !ok {
			continue
		}
		own := ""
		if a.name != apis[0].name {
			own = "." + a.name
		}
		show("prompts", own, streamed.prompts)
		show("events", own, formatEvents(streamed.events))
		if whole.prompts != streamed.prompts {
			parts = append(parts, part{prefix + "prompts" + own + ".json", whole.prompts})
		}
		if e := formatEvents(whole.events); e != formatEvents(streamed.events) {
			parts = append(parts, part{prefix + "events" + own + ".json", e})
		}
		parts = append(parts, part{prefix + a.name + ".json", whole.answer.golden()}, part{prefix + a.name + ".sse", streamed.answer.golden()})
	}
	return parts
}

func isGolden(name string) bool {
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "second "), ".")
	return slices.Contains([]string{"prompts", "events", "chat", "responses"}, name)
}
