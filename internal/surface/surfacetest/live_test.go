package surfacetest

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
)

// The bytes of a golden do not say when they left.
func TestLiveTextLeavesWhileTheToolRuns(t *testing.T) { // G04
	stories, err := readStories()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stories {
		if !strings.HasSuffix(s.path, "/live_text_before_the_tool_ends.txtar") {
			continue
		}
		p := play(t, s, apis[0], asStream)[0]
		said, ended := p.answer.when(t, "I will look."), toolEnd(p.events)
		if said != 0 || ended != 9*time.Second {
			t.Errorf("said after %v, the tool ended after %v", said, ended)
		}
		return
	}
	t.Fatal("the story is missing")
}

// when returns how long after the first frame the one with the text left.
func (c *client) when(t *testing.T, text string) time.Duration {
	t.Helper()
	for _, p := range c.pieces {
		if strings.Contains(string(p.bytes), text) {
			return p.at.Sub(c.pieces[0].at)
		}
	}
	t.Fatalf("%q was not sent", text)
	return 0
}

func toolEnd(events []timed) time.Duration {
	for _, e := range events {
		if _, ok := e.Event.(event.ToolDone); ok {
			return e.at.Round(time.Millisecond)
		}
	}
	return 0
}
