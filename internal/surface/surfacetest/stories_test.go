package surfacetest

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

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
	for _, s := range stories {
		t.Run(s.name(), func(t *testing.T) {
			if s.race != "" && raceDetector {
				t.Skipf("open: a data race: %s", s.race)
			}
			whole, streamed := play(t, s, asJSON), play(t, s, asStream)
			var parts []part
			for i := range whole {
				checkRun(t, whole[i])
				checkRun(t, streamed[i])
				if s.differ == "" {
					checkAgreement(t, whole[i], streamed[i])
				}
				parts = append(parts, goldens([]string{"", "second "}[i], whole[i], streamed[i])...)
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

// goldens are what a story shows of one request.
func goldens(prefix string, whole, streamed performance) []part {
	parts := []part{{prefix + "prompts", streamed.prompts}}
	if whole.prompts != streamed.prompts {
		parts = append(parts, part{prefix + "prompts.json", whole.prompts})
	}
	events := formatEvents(streamed.events)
	parts = append(parts, part{prefix + "events", events})
	if e := formatEvents(whole.events); e != events {
		parts = append(parts, part{prefix + "events.json", e})
	}
	return append(parts, part{prefix + "chat.json", whole.answer.golden()}, part{prefix + "chat.sse", streamed.answer.golden()})
}

func isGolden(name string) bool {
	name = strings.TrimPrefix(name, "second ")
	return slices.Contains([]string{"prompts", "prompts.json", "events", "events.json", "chat.json", "chat.sse"}, name)
}
