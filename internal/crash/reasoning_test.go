//go:build unix

package crash_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

const (
	thinkingRounds = 10
	tokensPerTurn  = 15
)

// thinkingStory is ten rounds, each with reasoning that can be read, reasoning that
// the provider hides, and a tool call; then the answer. The turn of round repeated
// is told twice; 0 = none is.
func thinkingStory(repeated int) string {
	var b strings.Builder
	for n := 1; n <= thinkingRounds; n++ {
		round := func(id string) {
			fmt.Fprintf(&b, "reasoning \"Round %d: <&> \u2028 \\\"é\\\"\"\nreasoning\nreasoning And on.\n", n)
			if n%3 == 0 {
				fmt.Fprintf(&b, "text Round %d.\n", n)
			}
			fmt.Fprintf(&b, "call %s send {\"n\":%d}\nusage 10 5\n\n", id, n)
		}
		if round(fmt.Sprint("c", n)); n == repeated {
			round(fmt.Sprint("again", n))
		}
	}
	return b.String() + "text Done.\nusage 10 5\n"
}

// thinkingCase is a run with reasoning on one dialect, disturbed or not.
type thinkingCase struct {
	kind  string // of the provider
	model string // "" = m
	asks  string // what every request has that asks for reasoning
	// back is what each turn adds to the requests that follow it, and how often.
	back map[string]int

	name     string
	points   []string // at which the gateway is killed, one process after the other
	repeated int      // the round whose model call is made twice; 0 = none is
	unknown  int      // calls whose outcome the model is told is unknown
	stream   bool
}

func thinkingCases() []thinkingCase {
	var cases []thinkingCase
	for _, c := range []thinkingCase{
		{kind: "openai", asks: `"reasoning_effort":"low"`, back: map[string]int{`"reasoning_content":"Round `: 1}},
		{kind: "anthropic", asks: `"thinking":{"type":"enabled","budget_tokens":2048}`, back: map[string]int{`"type":"thinking"`: 2, `"type":"redacted_thinking"`: 1}},
		{kind: "gemini", asks: `"thinkingConfig":{"includeThoughts":true,"thinkingLevel":"low"}`, back: map[string]int{`"thought":true`: 2, `"thoughtSignature":`: 2}},
		{
			kind: "bedrock", model: "g-anthropic.claude-sonnet-4-5-v1:0",
			asks: `"thinking":{"type":"enabled","budget_tokens":2048}`, back: map[string]int{`"reasoningText":`: 2, `"redactedContent":`: 1},
		},
		{kind: "openai-responses", asks: `"reasoning":{"effort":"low"`, back: map[string]int{`"encrypted_content":`: 3, `"summary":[]`: 1}},
	} {
		for _, c.stream = range []bool{false, true} {
			c.name, c.points, c.repeated, c.unknown = "undisturbed", nil, 0, 0
			cases = append(cases, c)
			c.name, c.points, c.unknown = "killed after a turn and in a tool call", []string{nth(crash.AfterTurn, 5), nth(crash.AfterCallSend, 2)}, 1
			cases = append(cases, c)
			c.name, c.points, c.repeated, c.unknown = "killed before a turn is stored", []string{nth(crash.BeforeTurn, 5)}, 5, 0
			cases = append(cases, c)
		}
	}
	return cases
}

// Ten rounds with reasoning, on each dialect. The provider, which lives on,
// refuses reasoning that differs by a byte from what it sent, also when the gateway is
// killed in the middle and another process continues. // P08 M08
func TestReasoningSurvivesCrashes(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(t, thinkingCases(), func(c thinkingCase) string { return c.kind }) {
		t.Run(fmt.Sprintf("%s %s stream=%v", c.kind, c.name, c.stream), func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c thinkingCase) run(t *testing.T) {
	script := turnpiketest.NewScript(t, thinkingStory(c.repeated))
	up := upstreamtest.New(script, upstreamtest.Options{Strict: true})
	t.Cleanup(up.Close)
	w := newWorld(t, options{
		kind: c.kind, model: c.model, providerURL: up.URL, runtime: "max_rounds: 20, tool_parallelism: serial",
		tools: []turnpiketest.Tool{{Name: "send", Result: "sent"}},
	})
	q := question{text: "Think.", stream: c.stream, key: "thinking-1", effort: "low"}
	var got <-chan insistence
	for i, point := range append(c.points, "") {
		p := w.start(point)
		if i == 0 {
			got = w.insist(q, nil)
		}
		if point != "" {
			p.wantKilled(t, "which passes "+point)
		}
	}
	in := w.answered(got)
	want := answer{status: http.StatusOK, runID: in.runID, text: "Done.", reason: "stop", tokens: (thinkingRounds + 1) * tokensPerTurn}
	if c.stream {
		want.text = "Round 3.\n\nRound 6.\n\nRound 9.\n\nDone."
	}
	for _, a := range []answer{in.answer, w.ask(t.Context(), q, nil)} {
		if a != want {
			t.Errorf("answered %+v, want %+v", a, want)
		}
	}
	if _, fates := w.judge("complete"); len(fates) != thinkingRounds { // and none was executed twice
		t.Errorf("%d calls in the journal, want %d", len(fates), thinkingRounds)
	}
	if script.Left() != 0 {
		t.Errorf("%d turns of the story were not asked for", script.Left())
	}
	c.wantRequests(t, up.Requests())
}

// wantRequests fails the test unless the provider accepted every request, and each
// has the reasoning of all rounds before it.
func (c thinkingCase) wantRequests(t *testing.T, requests []upstreamtest.Request) {
	t.Helper()
	rounds := 0 // that the request tells of
	for i, r := range requests {
		if r.Refused != "" {
			t.Fatalf("request %d was refused: %s", i, r.Refused)
		}
		body := string(r.Body)
		if !strings.Contains(body, c.asks) {
			t.Errorf("request %d does not ask for reasoning", i)
		}
		for text, times := range c.back {
			if n := strings.Count(body, text); n != times*rounds {
				t.Errorf("request %d has %s %d times, want %d", i, text, n, times*rounds)
			}
		}
		if rounds++; i+1 == c.repeated { // the answer is lost
			rounds--
		}
	}
	if n := strings.Count(string(requests[len(requests)-1].Body), "outcome_unknown: "); n != c.unknown {
		t.Errorf("the model was told of %d unknown outcomes, want %d", n, c.unknown)
	}
}
