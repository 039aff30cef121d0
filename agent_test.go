package turnpike_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) } // O01

type city struct {
	City string `json:"city"`
}

func weather() *tool.Function[city] {
	return tool.Func("weather", "Current weather of a city.", func(_ context.Context, in city) (string, error) {
		if in.City != "Bern" {
			return "", errors.New("there is no such city: " + in.City)
		}
		return "sunny, 21 °C", nil
	})
}

const story = `
text Let me see.
call c1 weather {"city":"Bern"}
usage 10 5

text It is sunny.
usage 20 5
`

// An agent with a function, without a server. // A11 E18
func TestAnAgentRunsWithoutAServer(t *testing.T) {
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, story), Tools: []tool.Tool{weather().ReadOnly()}, Instructions: "Be short."}
	r, err := a.Run(t.Context(), turnpike.Text("Is it warm in Bern?"), turnpike.ShowTrace())
	if err != nil {
		t.Fatal(err)
	}
	if r.Text != "It is sunny." || r.Rounds != 2 || r.Usage.Input != 30 || r.Reason != "stop" || len(r.Items) != 4 || r.SideEffects {
		t.Errorf("%+v", r)
	}
}

func TestAStream(t *testing.T) {
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, story), Tools: []tool.Tool{weather()}}
	s := a.Stream(t.Context(), turnpike.Text("Is it warm in Bern?"))
	var kinds []string
	for e, err := range s.Events() {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Type())
		if f, ok := e.(event.Finished); ok && f.Reason != event.Complete {
			t.Errorf("%+v", f)
		}
	}
	if got := strings.Join(kinds, " "); got != "started round_started text_delta call_delta call_delta round_done tool_started tool_done round_started text_delta round_done finished" { // G04, G05, G06
		t.Error(got)
	}
	r, err := s.Result()
	if err != nil || r.Text != "It is sunny." || r.RunID != s.ID() {
		t.Errorf("%+v, %v", r, err)
	}
}

// events yields the events of a stream without its errors.
func events(s *turnpike.Stream) iter.Seq[event.Event] {
	return func(yield func(event.Event) bool) {
		for e, err := range s.Events() {
			if err != nil || !yield(e) {
				return
			}
		}
	}
}
