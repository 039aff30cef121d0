//go:build unix

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// The measures of a long task: pages of 400 tokens in a window of 2,000.
const (
	taskWindow = 2_000 // tokens
	taskPages  = 9
)

// summaryOrder is in the last message of a call that writes a summary.
const summaryOrder = "Write a summary of everything above"

// promptTokens is the size of a transcript as the provider counts it.
func promptTokens(transcript []message) int {
	bytes := 0
	for _, m := range transcript {
		bytes += len(m.Content)
	}
	return bytes / 4
}

// pagesRead returns how many pages the model has read, by what its prompt has, and whether the prompt has the secret that is on the first one.
func pagesRead(transcript []message) (n int, secret string) {
	for _, m := range transcript {
		if m.Role == "tool" {
			n++
		}
		if _, text, ok := strings.Cut(m.Content, "pages read: "); ok {
			earlier := 0
			_, _ = fmt.Sscan(text, &earlier)
			n += earlier
		}
		if strings.Contains(m.Content, "plugh") {
			secret = "plugh"
		}
	}
	return n, secret
}

// longTask is a model that reads pages one after the other, and knows only what its prompt has.
func longTask(transcript []message) turn {
	n, secret := pagesRead(transcript)
	tokens := promptTokens(transcript)
	switch {
	case strings.Contains(transcript[len(transcript)-1].Content, summaryOrder):
		return turn{text: []string{fmt.Sprintf("pages read: %d ", n), "secret: " + secret}, prompt: tokens}
	case n < taskPages:
		return turn{text: []string{"Next. "}, calls: []call{{fmt.Sprint("c", n), "look", fmt.Sprintf(`{"page":%d}`, n+1)}}, prompt: tokens}
	}
	return turn{text: []string{"The secret is ", secret}, prompt: tokens}
}

// page is the result of a call of the task.
func page(_ context.Context, arguments json.RawMessage) (tool.Result, error) {
	var a struct{ Page int }
	if err := json.Unmarshal(arguments, &a); err != nil {
		return tool.Result{}, err
	}
	text := fmt.Sprintf("page %d: ", a.Page)
	if a.Page == 1 {
		text += "plugh "
	}
	return tool.Text(text + strings.Repeat("word ", 320)), nil
}

// compactionPoints are the points that a compaction passes.
func compactionPoints() []crash.Point {
	return []crash.Point{crash.AfterSummaryIntent, crash.AfterSummarySend, crash.BeforeCompacted, crash.AfterCompacted}
}

// A run that is killed while its prompt is made shorter goes on with the same prompt, or makes it shorter once more.
// P01 P51
func TestCompactionsSurviveCrashes(t *testing.T) {
	t.Parallel()
	type compaction struct {
		point crash.Point
		n     int
	}
	var cases []compaction
	for _, point := range compactionPoints() {
		cases = append(cases, compaction{point, 1}, compaction{point, 2})
	}
	for _, c := range sampled(t, cases, func(c compaction) string { return only(string(c.point)) }) {
		at := nth(c.point, c.n)
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{
				script: longTask, tools: []turnpiketest.Tool{{Name: "look", Answer: page}}, runtime: "context: auto, max_run_tokens: 1000000",
				more: fmt.Sprintf("models: [{model: m, context_window: %d}]\ncompaction: {exclude_tools: [look]}\n", taskWindow),
			})
			p := w.start(at)
			got := w.insist(question{text: "Read the pages.", stream: c.n == 1, key: "long-1"}, nil)
			p.wantKilled(t, "which passes "+at)
			w.start("")
			in := w.answered(got)
			if in.status != http.StatusOK || !strings.HasSuffix(in.text, "The secret is plugh") {
				t.Errorf("answered %+v", in.answer)
			}
			counted, _ := w.judge("complete")
			if counted.resumed != 1 {
				t.Errorf("resumed %d times", counted.resumed)
			}
			w.judgePrompts(c.point)
		})
	}
}

// judgePrompts compares the prompts that the provider has got with what the journal says of compactions.
func (w *world) judgePrompts(point crash.Point) {
	w.Helper()
	story, _ := w.load(w.onlyRun())
	compacted, summaries, repeated := 0, 0, map[string]int{}
	for _, f := range story.Facts {
		if b, ok := f.Body.(loop.Compacted); ok && !b.Failed && len(b.Refs) > 0 {
			compacted++
		}
	}
	for _, transcript := range w.provider.transcripts() {
		if n := promptTokens(transcript); n > taskWindow {
			w.Errorf("a prompt of %d tokens", n)
		}
		if strings.Contains(transcript[len(transcript)-1].Content, summaryOrder) {
			summaries++
			continue
		}
		if _, _, err := follow(transcript); err != nil {
			w.Error(err)
		}
		text, _ := json.Marshal(transcript) // strings
		repeated[string(text)]++
	}
	wasted := 0 // summaries that were paid and lost
	if point == crash.AfterSummarySend || point == crash.BeforeCompacted {
		wasted = 1
	}
	if compacted < 2 || summaries != compacted+wasted {
		w.Errorf("%d compactions and %d summaries", compacted, summaries)
	}
	for _, n := range repeated {
		if n > 1 {
			w.Errorf("a turn was asked for %d times", n)
		}
	}
}

// A conversation whose prompt is made shorter while its process is killed begins its later turns with the summary: what
// the first turn said is in the last prompt, and no turn pays for another summary than the one that was lost. // P01 P51
func TestCompactionsOfConversationsSurviveCrashes(t *testing.T) {
	t.Parallel()
	const turns, fact = 14, "plugh"
	tale := strings.Repeat("word ", 160)
	for _, point := range sampled(t, compactionPoints(), func(p crash.Point) string { return only(string(p)) }) {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{
				script: func(transcript []message) turn {
					tokens := promptTokens(transcript)
					if strings.Contains(transcript[len(transcript)-1].Content, summaryOrder) {
						_, secret := pagesRead(transcript)
						return turn{text: []string{"They said ", secret}, prompt: tokens}
					}
					return turn{text: []string{"Yes. " + tale}, prompt: tokens}
				},
				runtime: "context: auto, max_run_tokens: 1000000", more: fmt.Sprintf("models: [{model: m, context_window: %d}]\n", taskWindow),
			})
			p := w.start(nth(point, 1))
			previous := ""
			for n := range turns {
				q := asked{input: fmt.Sprintf("%d %s", n, tale), key: fmt.Sprint("turn-", n), previous: previous}
				if n == 0 {
					q.input = fact + " " + tale
				}
				got := w.respond(t.Context(), q)
				if got.status != http.StatusOK && p != nil {
					p.wantKilled(t, "which passes "+string(point))
					p = nil
					w.start("")
					got = await(t, "the answer", w.insistOnEnd(q))
				}
				if got.status != http.StatusOK || got.object.Status != "completed" {
					t.Fatalf("turn %d: %+v", n, got)
				}
				previous = got.object.ID
			}
			transcripts, summaries := w.provider.transcripts(), 0
			for _, transcript := range transcripts {
				if strings.Contains(transcript[len(transcript)-1].Content, summaryOrder) {
					summaries++
				}
			}
			_, secret := pagesRead(transcripts[len(transcripts)-1])
			if p != nil || secret != fact || summaries < 2 || summaries > turns/3+1 { // one was lost
				t.Errorf("killed: %t; the last prompt has %q after %d summaries of %d turns", p == nil, secret, summaries, turns)
			}
		})
	}
}
