package turnpike_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// prompt returns what the model was asked, as text.
func prompt(items []item.Item) string {
	var out []string
	for _, it := range items {
		switch it.Kind {
		case item.ToolCall:
			out = append(out, "call "+it.Name)
		case item.ToolResult:
			out = append(out, "result "+it.Text())
		default:
			out = append(out, string(it.Role)+" "+it.Text())
		}
	}
	return strings.Join(out, "; ")
}

// places are where an agent can keep its sessions.
func places(t *testing.T, f func(t *testing.T, a func(*turnpike.Agent) *turnpike.Agent)) {
	for _, place := range []string{"memory", "store", "conversations"} {
		t.Run(place, func(t *testing.T) {
			f(t, func(a *turnpike.Agent) *turnpike.Agent {
				if place != "memory" {
					store := open(t, filepath.Join(t.TempDir(), "runs.db"))
					if place == "store" {
						a.Store = store
					} else {
						a.Conversation = sqlite.NewSessions(store, sqlite.SessionOptions{})
					}
				}
				return a
			})
		})
	}
}

// The earlier turns are the prompt of the next run, streamed and not.
func TestASession(t *testing.T) {
	places(t, func(t *testing.T, at func(*turnpike.Agent) *turnpike.Agent) {
		m := turnpiketest.NewScript(t, story+"\ntext You are welcome.\n\ntext Bye.\n\ntext Who?\n")
		a := at(&turnpike.Agent{Model: m, Tools: []tool.Tool{weather()}, Instructions: "Be short."})
		s := a.Session("chat 1")
		first, err := s.Run(t.Context(), turnpike.Text("Warm?"))
		if err != nil || first.Text != "It is sunny." || len(first.Items) != 4 {
			t.Fatalf("%+v, %v", first, err)
		}
		for range events(s.Stream(t.Context(), turnpike.Text("Thanks."))) {
		}
		third, err := s.Run(t.Context(), turnpike.Text("Bye."))
		if err != nil || third.Text != "Bye." || len(third.Items) != 1 {
			t.Fatalf("%+v, %v", third, err)
		}
		want := "system Be short.; user Warm?; assistant Let me see.; call weather; result sunny, 21 °C; assistant It is sunny.; user Thanks.; assistant You are welcome.; user Bye."
		asked := m.Requests()
		if got := prompt(asked[3].Items); got != want {
			t.Errorf("asked %q", got)
		}
		last := 0
		for _, it := range asked[3].Items {
			if it.Turn != 0 && it.Turn < last {
				t.Errorf("turn %d after %d", it.Turn, last)
			}
			last = max(last, it.Turn)
		}
		if _, err := s.Run(t.Context(), turnpike.Text("Me?"), turnpike.As(turnpike.Caller{ID: "bob", Permissions: []string{"*"}})); err != nil {
			t.Fatal(err)
		}
		if got := prompt(m.Requests()[4].Items); got != "system Be short.; user Me?" { // the session of another caller
			t.Errorf("asked %q", got)
		}
	})
}

// A session has one run at a time. One that waits for approvals comes first, and goes on in the session.
func TestASessionHasOneRunAtATime(t *testing.T) {
	places(t, func(t *testing.T, at func(*turnpike.Agent) *turnpike.Agent) {
		entered, leave := make(chan struct{}), make(chan struct{})
		m := turnpiketest.Model(t, turnpiketest.Turn(turnpiketest.Call("look", nil), turnpiketest.Call("pay", nil)), turnpiketest.Say("Paid."), turnpiketest.Say("Next."))
		a := at(&turnpike.Agent{Model: m, Tools: []tool.Tool{
			tool.Func("look", "", func(context.Context, struct{}) (string, error) { close(entered); <-leave; return "seen", nil }),
			tool.Func("pay", "", func(context.Context, struct{}) (string, error) { return "done", nil }).ApproveIf(func(struct{}) bool { return true }),
		}})
		s := a.Session("s")
		failed := make(chan error)
		go func() {
			_, err := s.Run(t.Context(), turnpike.Text("one"))
			failed <- err
		}()
		<-entered
		var busy *turnpike.SessionError
		if _, err := s.Run(t.Context(), turnpike.Text("two")); !errors.As(err, &busy) || busy.Status() != 409 || busy.Session != "s" {
			t.Errorf("in progress: %v", err)
		}
		close(leave)
		var waiting *turnpike.Waiting
		if err := <-failed; !errors.As(err, &waiting) {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), turnpike.Text("two")); !errors.As(err, &busy) || busy.RunID != waiting.RunID || !strings.Contains(err.Error(), "waits for approvals") {
			t.Errorf("waiting: %v", err)
		}
		if _, err := a.Session("other").Resume(t.Context(), waiting.RunID).Result(); err == nil || err.(turnpike.Failure).Status() != 404 {
			t.Errorf("the run of another session: %v", err)
		}
		if r, err := s.Resume(t.Context(), waiting.RunID, turnpike.Approve(waiting.Approvals[0].ID)).Result(); err != nil || r.Text != "Paid." {
			t.Fatalf("%+v, %v", r, err)
		}
		if _, err := s.Run(t.Context(), turnpike.Text("two")); err != nil {
			t.Fatal(err)
		}
		if got := prompt(m.Requests()[2].Items); got != "user one; call look; call pay; result seen; result done; assistant Paid.; user two" {
			t.Errorf("asked %q", got)
		}
	})
}

// What a failed run did is in front of the next one; a run whose model never answered is not.
func TestASessionAfterAFailure(t *testing.T) {
	places(t, func(t *testing.T, at func(*turnpike.Agent) *turnpike.Agent) {
		ctx, cancel := context.WithCancel(t.Context())
		m := turnpiketest.Model(t, turnpiketest.Fail(400), turnpiketest.Turn(turnpiketest.Call("pay", nil), turnpiketest.Call("stop", nil)), turnpiketest.Say("I had paid."))
		a := at(&turnpike.Agent{Model: m, Parallelism: turnpike.Serial, Tools: []tool.Tool{
			tool.Func("pay", "", func(context.Context, struct{}) (string, error) { return "paid", nil }),
			tool.Func("stop", "", func(ctx context.Context, _ struct{}) (string, error) { cancel(); return "", ctx.Err() }),
		}})
		s := a.Session("s")
		if _, err := s.Run(t.Context(), turnpike.Text("too long")); err == nil {
			t.Fatal("the model has failed, and the run has not")
		}
		var abort *turnpike.AbortError
		if _, err := s.Run(ctx, turnpike.Text("pay")); !errors.As(err, &abort) {
			t.Fatal(err)
		}
		if _, err := s.Run(t.Context(), turnpike.Text("paid?")); err != nil {
			t.Fatal(err)
		}
		last := m.Requests()[len(m.Requests())-1].Items
		if got := prompt(last); !strings.HasPrefix(got, "user pay; call pay; call stop; result paid; result ") || !strings.HasSuffix(got, "; user paid?") || len(last) != 6 {
			t.Errorf("asked %q", got)
		}
	})
}

// A call without a result gets one that says so: providers refuse a prompt with an open call.
func TestASessionWithoutTheResultsOfACrash(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	kept := sqlite.NewSessions(store, sqlite.SessionOptions{})
	call := item.NewCall("c1", "pay", "{}")
	call.Turn = 1
	for n, turn := range []turnpike.Turn{
		{Role: turnpike.InputTurn, Items: []item.Item{item.NewText(item.User, "pay")}},
		{Role: turnpike.AssistantTurn, Items: []item.Item{call}},
	} {
		turn.Session, turn.RunID, turn.Number, turn.Caller = "s", "run_x", n, turnpike.Caller{ID: "program"}
		if err := kept.Append(t.Context(), turn); err != nil {
			t.Fatal(err)
		}
	}
	m := turnpiketest.Model(t, turnpiketest.Say("I do not know."))
	if _, err := (&turnpike.Agent{Model: m, Conversation: kept}).Session("s").Run(t.Context(), turnpike.Text("paid?")); err != nil {
		t.Fatal(err)
	}
	if got := prompt(m.Requests()[0].Items); got != "user pay; call pay; result There is no result: the run ended before. The call may have been carried out.; user paid?" {
		t.Errorf("asked %q", got)
	}
}

// A session goes on after a restart, with a raised limit, and without what its summary stands for.
func TestASessionAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	m := turnpiketest.Model(t, turnpiketest.Say("One."), turnpiketest.Call("weather", city{"Bern"}), turnpiketest.Call("weather", city{"Bern"}), turnpiketest.Say("Two."), turnpiketest.Say("Three."))
	sink := &log{}
	agent := func(rounds int) *turnpike.Agent {
		return &turnpike.Agent{Model: m, Store: store, Tools: []tool.Tool{weather()}, Limits: turnpike.Limits{Rounds: rounds}, Conversation: sink}
	}
	first, err := agent(1).Session("s").Run(t.Context(), turnpike.Text("1"))
	if err != nil {
		t.Fatal(err)
	}
	var limit *turnpike.LimitError
	if _, err := agent(1).Session("s").Run(t.Context(), turnpike.Text("2")); !errors.As(err, &limit) {
		t.Fatal(err)
	}
	store = reopen(t, store, path)
	if r, err := agent(3).Resume(t.Context(), limit.Result().RunID).Result(); err != nil || r.Text != "Two." {
		t.Fatalf("%+v, %v", r, err)
	}
	kept := sqlite.NewSessions(store, sqlite.SessionOptions{})
	key := turnpike.SessionKey{Caller: turnpike.Program().Key(), ID: "s"}
	if err := kept.Summarize(t.Context(), key, first.RunID, "They counted."); err != nil {
		t.Fatal(err)
	}
	if _, err := agent(3).Session("s").Run(t.Context(), turnpike.Text("3")); err != nil {
		t.Fatal(err)
	}
	if got := prompt(m.Requests()[4].Items); got != "system Summary of the conversation before:\nThey counted.; user 2; call weather; result sunny, 21 °C; call weather; result sunny, 21 °C; assistant Two.; user 3" {
		t.Errorf("asked %q", got)
	}
	if sink.len() < 8 || sink.turns[0].Session != "s" {
		t.Errorf("another conversation gets the turns too: %s", sink)
	}
	found, err := kept.List(t.Context(), turnpike.Program().Key(), "", 0)
	if err != nil || len(found) != 1 || found[0].ID != "s" || found[0].Summary != "They counted." || time.Until(found[0].Expires) < 29*24*time.Hour {
		t.Errorf("%+v, %v", found, err)
	}
	if err := kept.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Turns(t.Context(), key); !errors.Is(err, turnpike.ErrNoSession) {
		t.Error(err)
	}
}

func TestWhatASessionRefuses(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	kept := sqlite.NewSessions(store, sqlite.SessionOptions{TurnBytes: 1000, TTL: -1})
	m := turnpiketest.Model(t, turnpiketest.Say("x"))
	a := &turnpike.Agent{Model: m, Conversation: kept}
	for _, id := range []string{"", strings.Repeat("x", 257), "\xff"} {
		if _, err := a.Session(id).Run(t.Context(), turnpike.Text("x")); err == nil || err.(turnpike.Failure).Status() != 400 {
			t.Errorf("%q: %v", id, err)
		}
	}
	if _, err := a.Session("s").Run(t.Context(), turnpike.Text("x"), turnpike.Mode(turnpike.Return)); err == nil || err.(turnpike.Failure).Status() != 400 {
		t.Error(err)
	}
	var lost *turnpike.LostError
	if _, err := a.Session("s").Run(t.Context(), turnpike.Text(strings.Repeat("x", 1000))); !errors.As(err, &lost) || len(m.Requests()) != 0 {
		t.Errorf("a turn that is too large: %v", err)
	}
	long := sqlite.SessionDescription{Title: strings.Repeat("x", 1001)}
	err := kept.Describe(t.Context(), turnpike.SessionKey{Caller: turnpike.Program().Key(), ID: "s"}, long)
	if err == nil || !strings.Contains(err.Error(), "TurnBytes") {
		t.Error(err)
	}
	if _, err := a.Session("s").Run(t.Context(), turnpike.Text("x")); err != nil {
		t.Fatal(err)
	}
	if c, err := kept.Get(t.Context(), turnpike.SessionKey{Caller: turnpike.Program().Key(), ID: "s"}); err != nil || !c.Expires.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
}

// A session in memory keeps its latest turns, and whole runs of them.
func TestTheBoundOfASessionInMemory(t *testing.T) {
	var turns []turnpiketest.Step
	for n := range 121 {
		turns = append(turns, turnpiketest.Say(fmt.Sprint("a", n)))
	}
	m := turnpiketest.Model(t, turns...)
	s := (&turnpike.Agent{Model: m}).Session("s")
	for n := range 121 {
		if _, err := s.Run(t.Context(), turnpike.Text(fmt.Sprint("q", n))); err != nil {
			t.Fatal(err)
		}
	}
	last := m.Requests()[120].Items
	if got := prompt(last); len(last) != 201 || !strings.HasPrefix(got, "user q20; assistant a20; ") {
		t.Errorf("%d items: %q", len(last), got)
	}
}
