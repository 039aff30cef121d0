package replaytest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
	"github.com/turnpike-gateway/turnpike/turnpiketest/replaytest"
)

func TestMain(m *testing.M) {
	turnpiketest.UpdateFlag()
	goleak.VerifyTestMain(m)
}

type order struct {
	ID string `json:"id"`
}

// script is a model that stands for a real one.
func script(t *testing.T) model.Model {
	return turnpiketest.Model(t,
		turnpiketest.Turn(turnpiketest.Say("Let me see. "), turnpiketest.Call("find", order{"A7"}), turnpiketest.Call("find", order{"B1"}), turnpiketest.Uses(40, 9)),
		turnpiketest.Call("refund", order{"A7"}),
		turnpiketest.Say("A7 is refunded."),
	)
}

// agent returns the agent under test. change alters it.
func agent(m model.Model, change ...func(*turnpike.Agent)) *turnpike.Agent {
	a := &turnpike.Agent{Model: m, Instructions: "Be careful.", Tools: []tool.Tool{
		tool.Func("find", "", func(_ context.Context, in order) (string, error) {
			if in.ID != "A7" {
				return "", errors.New("no such order")
			}
			return "A7: 20.00", nil
		}).ReadOnly(),
		refund("refunded"),
	}}
	for _, f := range change {
		f(a)
	}
	return a
}

func refund(result string) tool.Tool {
	return tool.Func("refund", "", func(context.Context, order) (string, error) { return result, nil }).ApproveIf(func(order) bool { return true })
}

const file = "testdata/refund.json"

func TestReplay(t *testing.T) {
	replaytest.Record(t, file, agent(script(t)), turnpike.Text("Refund A7."))
	replaytest.Replay(t, file, agent(nil))
}

// told is a test that fails without failing this one.
type told struct {
	testing.TB
	text string
}

func (r *told) Errorf(format string, args ...any) { r.text += fmt.Sprintf(format, args...) }
func (r *told) Helper()                           {}

// Each difference is said plainly.
func TestReplayTellsDifferences(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*turnpike.Agent)
		want   []string
	}{
		"another result": {func(a *turnpike.Agent) { a.Tools[1] = refund("done") },
			[]string{`round 2: refund {"id":"A7"}: the result is` + "\n" + `  "done"` + "\nand in the recording\n" + `  "refunded"`}},
		"a tool is missing": {func(a *turnpike.Agent) { a.Tools = a.Tools[:1] },
			[]string{`round 2: refund {"id":"A7"}: the outcome is `, `, and ok in the recording`}},
		"a limit is lower": {func(a *turnpike.Agent) { a.Limits.Rounds = 1 },
			[]string{"the model is called 1 times, and 3 times in the recording", `round 2: refund {"id":"A7"}: this call is in the recording, and the run does not make it`,
				"the run ends with a *turnpike.LimitError, and with an answer in the recording"}},
		"a failed tool ends the run": {func(a *turnpike.Agent) { a.ToolErrors = turnpike.Abort }, []string{"the run ends with a *turnpike.ToolError"}},
		"another description":        {func(a *turnpike.Agent) { a.Instructions = "Be quick." }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &told{TB: t}
			replaytest.Replay(r, file, agent(nil, c.change))
			for _, want := range c.want {
				if !strings.Contains(r.text, want) {
					t.Errorf("it says\n%s\nand not %q", r.text, want)
				}
			}
			if len(c.want) == 0 && r.text != "" {
				t.Error(r.text)
			}
		})
	}
}

// A run of a store is a recording too, and so is one that has failed; and the model can be asked once more.
func TestRecordings(t *testing.T) {
	if turnpiketest.Updating() {
		t.Skip("sets -update itself")
	}
	dir := t.TempDir()
	updating := func(t *testing.T, f func()) {
		t.Helper()
		if err := flag.Set("update", "true"); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = flag.Set("update", "false") }()
		f()
	}
	store, err := sqlite.Open(filepath.Join(dir, "runs.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	first := agent(script(t))
	first.Store = store
	_, err = first.Run(t.Context(), turnpike.Text("Refund A7."))
	var waiting *turnpike.Waiting
	if !errors.As(err, &waiting) {
		t.Fatal(err)
	}
	if _, err := first.Resume(t.Context(), waiting.RunID, turnpike.Deny(waiting.Approvals[0].ID, "")).Result(); err != nil {
		t.Fatal(err)
	}
	r, err := first.Resume(t.Context(), waiting.RunID).Result() // as another process would read it
	if err != nil {
		t.Fatal(err)
	}
	stored, failed := filepath.Join(dir, "stored.json"), filepath.Join(dir, "failed.json")
	updating(t, func() {
		replaytest.Write(t, stored, []item.Item{item.NewText(item.User, "Refund A7.")}, r)
		replaytest.Record(t, failed, agent(turnpiketest.Model(t, turnpiketest.Call("find", order{"A7"}), turnpiketest.Fail(400))), turnpike.Text("Refund A7."))
	})
	replaytest.Replay(t, failed, agent(nil))
	told := &told{TB: t}
	replaytest.Replay(told, stored, agent(nil)) // the call is denied again
	if told.text != "" {
		t.Error(told.text)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	denied := strings.Replace(string(text), `"result": "refunded",`+"\n      \"outcome\": \"ok\"", `"result": "x", "failed": true,`+"\n      \"outcome\": \"denied\"", 1)
	if err := os.WriteFile(stored, []byte(denied), 0o600); err != nil {
		t.Fatal(err)
	}
	told.text = ""
	replaytest.Replay(told, stored, agent(nil))
	if !strings.Contains(told.text, "the result is\n  error ") || strings.Contains(told.text, "outcome") {
		t.Errorf("a denied call is denied again: %s", told.text)
	}
}
