package turnpiketest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/script"
	"github.com/turnpike-gateway/turnpike/model"
)

// Step is what a [Model] does in a turn, or a whole turn: see [Say], [Call], [Fail], [Cut], [Uses] and [Turn].
type Step struct{ steps []script.Step }

// Model returns a model that answers its calls with the steps, one turn for each:
//
//	turnpiketest.Model(t,
//		turnpiketest.Call("weather", map[string]string{"city": "Bern"}),
//		turnpiketest.Say("It is warm."),
//	)
//
// Turn makes one turn of several steps. A program without a test uses [ParseScript]. A call beyond the last turn fails.
func Model(t testing.TB, turns ...Step) *Script {
	t.Helper()
	s := &Script{}
	calls := 0
	for i, one := range turns {
		for j := range one.steps {
			step := &one.steps[j]
			if step.Verb != script.MakeCall {
				continue
			}
			calls++
			step.Call.ID = fmt.Sprintf("call_%d", calls)
			if !json.Valid([]byte(step.Call.Arguments)) && !strings.HasPrefix(step.Call.Arguments, invalidArguments) {
				t.Fatalf("turn %d: the arguments of %s have no JSON: %s", i+1, step.Call.Name, step.Call.Arguments)
			}
			step.Call.Arguments = strings.TrimPrefix(step.Call.Arguments, invalidArguments)
		}
		s.turns = append(s.turns, script.Turn{Steps: one.steps})
	}
	return s
}

// invalidArguments marks arguments that a test wants to be invalid.
const invalidArguments = "\x00"

// Turn is one turn of several steps, such as a text and two calls.
func Turn(steps ...Step) Step {
	var all Step
	for _, s := range steps {
		all.steps = append(all.steps, s.steps...)
	}
	return all
}

// Say says a text.
func Say(text string) Step { return Step{[]script.Step{{Verb: script.SayText, Text: text}}} }

// Call calls a tool. arguments is anything that has JSON; a json.RawMessage or a string is used as it is,
// also if it is not valid.
func Call(tool string, arguments any) Step {
	var text string
	switch a := arguments.(type) {
	case nil:
		text = "{}"
	case string:
		text = invalidArguments + a
	case json.RawMessage:
		text = invalidArguments + string(a)
	default:
		b, err := json.Marshal(a)
		if text = string(b); err != nil {
			text = err.Error()
		}
	}
	return Step{[]script.Step{{Verb: script.MakeCall, Call: model.Call{Name: tool, Arguments: text}}}}
}

// Fail fails with an HTTP status, as a provider does.
func Fail(status int) Step {
	return Step{[]script.Step{{Verb: script.Fail, Failure: script.Failure{Status: status}}}}
}

// Cut breaks the stream off.
func Cut() Step { return Step{[]script.Step{{Verb: script.Cut}}} }

// Uses sets the tokens of its turn. A turn without it says nothing of its tokens: where the run has a limit on money or tokens,
// such a turn counts as the estimated maximum of its call.
func Uses(input, output int64) Step {
	return Step{[]script.Step{{Verb: script.SetUsage, Usage: model.Usage{Input: input, Output: output, Total: input + output}}}}
}
