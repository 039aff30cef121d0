package turnpike_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// A session is shown and deleted for its caller, wherever it is kept.
func TestASessionIsShownAndDeleted(t *testing.T) {
	places(t, func(t *testing.T, at func(*turnpike.Agent) *turnpike.Agent) {
		m := turnpiketest.NewScript(t, story+"\ntext Hello Bob.\n\ntext Again.\n")
		a := at(&turnpike.Agent{Model: m, Tools: []tool.Tool{weather()}})
		bob := turnpike.Caller{ID: "bob", Permissions: []string{"*"}}
		s := a.Session("chat 1")
		if _, err := s.Info(t.Context()); !errors.Is(err, turnpike.ErrNoSession) {
			t.Errorf("before the first run: %v", err)
		}
		if _, err := s.Turns(t.Context()); !errors.Is(err, turnpike.ErrNoSession) {
			t.Errorf("before the first run: %v", err)
		}
		for _, s := range []*turnpike.Session{s, s.As(bob)} {
			if _, err := s.Run(t.Context(), turnpike.Text("Warm?")); err != nil {
				t.Fatal(err)
			}
		}
		info, err := s.Info(t.Context())
		if err != nil || info.ID != "chat 1" || info.Caller != turnpike.Program().Key() || time.Since(info.Created) > time.Minute ||
			info.Updated.Before(info.Created) {
			t.Errorf("%+v, %v", info, err)
		}
		if info, err := s.As(bob).Info(t.Context()); err != nil || info.Caller != bob.Key() {
			t.Errorf("%+v, %v", info, err)
		}
		turns, err := s.Turns(t.Context())
		if err != nil || len(turns) != 4 || turns[0].Items[0].Text() != "Warm?" || turns[3].Role != turnpike.AssistantTurn ||
			turns[3].Items[0].Text() != "It is sunny." {
			t.Errorf("%+v, %v", turns, err)
		}
		if err := s.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context()); !errors.Is(err, turnpike.ErrNoSession) {
			t.Errorf("deleted twice: %v", err)
		}
		if turns, err := s.As(bob).Turns(t.Context()); err != nil || len(turns) != 2 {
			t.Errorf("of another caller: %+v, %v", turns, err)
		}
		if _, err := s.Run(t.Context(), turnpike.Text("Who?")); err != nil || prompt(m.Requests()[3].Items) != "user Who?" {
			t.Errorf("the next run reads %q, %v", prompt(m.Requests()[3].Items), err)
		}
		var invalid *turnpike.ValidationError
		if err := a.Session("").Delete(t.Context()); !errors.As(err, &invalid) {
			t.Errorf("without an id: %v", err)
		}
	})
}

// A session whose run has not ended is not deleted.
func TestASessionIsNotDeletedUnderItsRun(t *testing.T) {
	places(t, func(t *testing.T, at func(*turnpike.Agent) *turnpike.Agent) {
		entered, leave := make(chan struct{}), make(chan struct{})
		m := turnpiketest.Model(t, turnpiketest.Turn(turnpiketest.Call("look", nil), turnpiketest.Call("pay", nil)))
		a := at(&turnpike.Agent{Model: m, Tools: []tool.Tool{
			tool.Func("look", "", func(context.Context, struct{}) (string, error) { close(entered); <-leave; return "seen", nil }),
			tool.Func("pay", "", func(context.Context, struct{}) (string, error) { return "done", nil }).
				ApproveIf(func(struct{}) bool { return true }),
		}})
		s := a.Session("s")
		failed := make(chan error)
		go func() {
			_, err := s.Run(t.Context(), turnpike.Text("one"))
			failed <- err
		}()
		<-entered
		var busy *turnpike.SessionError
		if err := s.Delete(t.Context()); !errors.As(err, &busy) {
			t.Errorf("in progress: %v", err)
		}
		close(leave)
		var waiting *turnpike.Waiting
		if err := <-failed; !errors.As(err, &waiting) {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context()); !errors.As(err, &busy) || busy.RunID != waiting.RunID {
			t.Errorf("waiting: %v", err)
		}
		if err := s.Cancel(t.Context(), waiting.RunID); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context()); err != nil {
			t.Errorf("cancelled: %v", err)
		}
		if err := s.Cancel(t.Context(), waiting.RunID); err == nil {
			t.Error("a run that has ended is cancelled")
		}
	})
}

// The list of sessions holds after a restart, and is that of a caller.
func TestTheSessionsOfAnAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	m := turnpiketest.NewScript(t, "text 1\n\ntext 2\n\ntext 3\n\ntext 4\n")
	bob := turnpike.Caller{ID: "bob"}
	a := &turnpike.Agent{Model: m, Store: store}
	for _, s := range []*turnpike.Session{a.Session("a"), a.Session("b"), a.Session("a").As(bob)} {
		if _, err := s.Run(t.Context(), turnpike.Text("go")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Run(t.Context(), turnpike.Text("go")); err != nil { // is part of no session
		t.Fatal(err)
	}
	store = reopen(t, store, path)
	a = &turnpike.Agent{Model: m, Store: store}
	list := func(c turnpike.Caller) (ids string) {
		t.Helper()
		for _, one := range collect(t, a.Sessions(t.Context(), c)) {
			ids += one.ID
		}
		return ids
	}
	if got := list(turnpike.Program()) + " " + list(bob); got != "ba a" {
		t.Errorf("the lists are %q", got)
	}
	for one, err := range a.Sessions(t.Context(), turnpike.Program()) {
		if err != nil || one.ID != "b" {
			t.Errorf("%+v, %v", one, err)
		}
		break
	}
	var invalid *turnpike.ValidationError
	for name, a := range map[string]*turnpike.Agent{"no store": {Model: m}, "a log": {Model: m, Conversation: &log{}}} {
		for one, err := range a.Sessions(t.Context(), turnpike.Program()) {
			if !errors.As(err, &invalid) {
				t.Errorf("%s: %+v, %v", name, one, err)
			}
		}
		if invalid == nil {
			t.Errorf("%s: no error", name)
		}
		invalid = nil
	}
}

// A run of a session that goes on without its caller keeps the session, also over a restart in the middle of it.
func TestASessionStartsARun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	m := turnpiketest.Model(
		t,
		turnpiketest.Say("One."),
		turnpiketest.Call("look", nil),
		turnpiketest.Say("Two."),
		turnpiketest.Say("Three."),
	)
	entered := make(chan struct{})
	agent := func(f func(context.Context, struct{}) (string, error)) *turnpike.Agent {
		return &turnpike.Agent{Model: m, Store: store, Tools: []tool.Tool{tool.Func("look", "", f).ReadOnly()}}
	}
	chat := agent(func(ctx context.Context, _ struct{}) (string, error) {
		close(entered)
		<-ctx.Done()
		return "", ctx.Err()
	}).Session("s")
	follow := func(a *turnpike.Agent, id string) {
		t.Helper()
		if _, err := a.Follow(t.Context(), id, event.Position{}).Result(); err != nil {
			t.Fatal(err)
		}
	}
	id, err := chat.Start(t.Context(), turnpike.Text("1"))
	if err != nil {
		t.Fatal(err)
	}
	follow(&turnpike.Agent{Model: m, Store: store}, id)
	var busy *turnpike.SessionError
	for id, err = chat.Start(t.Context(), turnpike.Text("2")); errors.As(err, &busy); { // its last turn follows the last event
		id, err = chat.Start(t.Context(), turnpike.Text("2"))
	}
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	if _, err := chat.Start(t.Context(), turnpike.Text("3")); !errors.As(err, &busy) {
		t.Errorf("in progress: %v", err)
	}
	store = reopen(t, store, path)
	a := agent(func(context.Context, struct{}) (string, error) { return "seen", nil })
	if _, err := a.Session("s").
		Run(t.Context(), turnpike.Text("3")); !errors.As(err, &busy) || busy.RunID != id ||
		!strings.Contains(err.Error(), "resume it after a crash") {
		t.Errorf("broken off: %v", err)
	}
	if r, err := a.Session("s").Resume(t.Context(), id).Result(); err != nil || r.Text != "Two." {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := a.Session("s").Run(t.Context(), turnpike.Text("3")); err != nil {
		t.Fatal(err)
	}
	if got := prompt(m.Requests()[3].Items); got != "user 1; assistant One.; user 2; call look; result seen; assistant Two.; user 3" {
		t.Errorf("asked %q", got)
	}
	if _, err := (&turnpike.Agent{Model: m}).Session("s").
		Start(t.Context(), turnpike.Text("x")); err == nil ||
		err.(turnpike.Failure).Status() != 400 {
		t.Errorf("without a store: %v", err)
	}
}

// The turns of a session outlive the journals of its runs, and a run that a restart has broken off can be cancelled.
func TestASessionOutlivesItsRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	m := turnpiketest.Model(t, turnpiketest.Say("One."), turnpiketest.Call("look", nil), turnpiketest.Say("Three."))
	entered := make(chan struct{})
	agent := func() *turnpike.Agent {
		return &turnpike.Agent{
			Model: m,
			Store: store,
			Tools: []tool.Tool{tool.Func("look", "", func(ctx context.Context, _ struct{}) (string, error) {
				close(entered)
				<-ctx.Done()
				return "", ctx.Err()
			}).ReadOnly()},
		}
	}
	if _, err := agent().Session("s").Run(t.Context(), turnpike.Text("1")); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.ExecContext(t.Context(), "PRAGMA foreign_keys = ON; DELETE FROM runs") // as the retention of a gateway does
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	store = open(t, path)
	id, err := agent().Session("s").Start(t.Context(), turnpike.Text("2"))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	store = reopen(t, store, path)
	if err := agent().Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := agent().Session("s").Run(t.Context(), turnpike.Text("3")); err != nil {
		t.Fatal(err)
	}
	got := prompt(m.Requests()[2].Items)
	if !strings.HasPrefix(got, "user 1; assistant One.; user 2; call look; result ") || !strings.HasSuffix(got, "; user 3") {
		t.Errorf("asked %q", got)
	}
}

func TestAPlaceOfSessionsThatDoesNotRewindThem(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "text 1\n"), Conversation: struct{ turnpike.SessionStore }{store.Sessions()}}
	var invalid *turnpike.ValidationError
	if err := a.Session("s").Rewind(t.Context(), "run_x"); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "SessionRewinder") {
		t.Errorf("%v", err)
	}
}

// More sessions than are read at a time.
func TestManySessions(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	kept := store.Sessions()
	for i := range 230 {
		turn := turnpike.Turn{
			Session: fmt.Sprint(i),
			RunID:   fmt.Sprint("run_", i),
			Caller:  turnpike.Program(),
			Items:   []item.Item{item.NewText(item.User, "x")},
		}
		if err := kept.Append(t.Context(), turn); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, one := range collect(t, (&turnpike.Agent{Model: turnpiketest.NewScript(t, "text 1\n"), Store: store}).Sessions(t.Context(), turnpike.Program())) {
		seen[one.ID] = true
	}
	if len(seen) != 230 {
		t.Errorf("%d of 230 sessions", len(seen))
	}
}

// collect returns what a sequence yields.
func collect[T any](t *testing.T, seq iter.Seq2[T, error]) (out []T) {
	t.Helper()
	for one, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, one)
	}
	return out
}

// texts returns what the turns of a session say.
func texts(t *testing.T, s *turnpike.Session) string {
	t.Helper()
	turns, err := s.Turns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, turn := range turns {
		out = append(out, turn.Items[0].Text())
	}
	return strings.Join(out, " ")
}

// A session is rewound to before a run, and forked, wherever it is kept; neither changes the other from then on.
func TestASessionIsRewoundAndForked(t *testing.T) {
	places(t, func(t *testing.T, at func(*turnpike.Agent) *turnpike.Agent) {
		m := turnpiketest.NewScript(t, "text 1\n\ntext 2\n\ntext 3\n\ntext 4\n\ntext 5\n")
		a := at(&turnpike.Agent{Model: m})
		bob := turnpike.Caller{ID: "bob"}
		s := a.Session("s")
		if _, err := s.Fork(t.Context(), "early"); !errors.Is(err, turnpike.ErrNoSession) {
			t.Errorf("before the first run: %v", err)
		}
		run := func(s *turnpike.Session, in string) string {
			t.Helper()
			r, err := s.Run(t.Context(), turnpike.Text(in))
			if err != nil {
				t.Fatal(err)
			}
			return r.RunID
		}
		run(s, "a")
		second := run(s, "b")
		foreign := run(s.As(bob), "c")
		fork, err := s.Fork(t.Context(), "f")
		if err != nil || fork.ID() != "f" {
			t.Fatal(err)
		}
		for _, id := range []string{"f", "s", ""} {
			var invalid *turnpike.ValidationError
			if _, err := s.Fork(t.Context(), id); !errors.As(err, &invalid) {
				t.Errorf("into %q: %v", id, err)
			}
		}
		for _, id := range []string{foreign, "run_x", ""} {
			if err := s.Rewind(t.Context(), id); !errors.Is(err, turnpike.ErrNoSession) || texts(t, s) != "a 1 b 2" {
				t.Errorf("to %q: %v", id, err)
			}
		}
		if err := s.Rewind(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if err := s.Rewind(t.Context(), second); !errors.Is(err, turnpike.ErrNoSession) {
			t.Errorf("a second time: %v", err)
		}
		run(s, "d")
		run(fork, "e")
		got := prompt(m.Requests()[3].Items) + ", " + prompt(m.Requests()[4].Items)
		if got != "user a; assistant 1; user d, user a; assistant 1; user b; assistant 2; user e" {
			t.Errorf("asked %q", got)
		}
		if err := s.Delete(t.Context()); err != nil || texts(t, fork) != "a 1 b 2 e 5" {
			t.Errorf("deleted: %v", err)
		}
		again, err := fork.Fork(t.Context(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if err := fork.Delete(t.Context()); err != nil || texts(t, again) != "a 1 b 2 e 5" || texts(t, s.As(bob)) != "c 3" {
			t.Errorf("the fork deleted: %v", err)
		}
		if err := s.As(bob).Rewind(t.Context(), foreign); err != nil || texts(t, s.As(bob)) != "" {
			t.Errorf("of its caller: %v", err)
		}
	})
}

// A session is not rewound or forked under its run.
func TestASessionIsNotRewoundUnderItsRun(t *testing.T) {
	places(t, func(t *testing.T, at func(*turnpike.Agent) *turnpike.Agent) {
		entered, leave := make(chan struct{}), make(chan struct{})
		m := turnpiketest.Model(t, turnpiketest.Turn(turnpiketest.Call("look", nil), turnpiketest.Call("pay", nil)))
		a := at(&turnpike.Agent{Model: m, Tools: []tool.Tool{
			tool.Func("look", "", func(context.Context, struct{}) (string, error) { close(entered); <-leave; return "seen", nil }),
			tool.Func("pay", "", func(context.Context, struct{}) (string, error) { return "done", nil }).
				ApproveIf(func(struct{}) bool { return true }),
		}})
		s := a.Session("s")
		failed := make(chan error)
		go func() {
			_, err := s.Run(t.Context(), turnpike.Text("one"))
			failed <- err
		}()
		<-entered
		refused := func(when, runID string) {
			var busy *turnpike.SessionError
			if err := s.Rewind(t.Context(), "run_x"); !errors.As(err, &busy) || busy.RunID != runID {
				t.Errorf("rewind, %s: %v", when, err)
			}
			if _, err := s.Fork(t.Context(), "f"); !errors.As(err, &busy) || busy.RunID != runID {
				t.Errorf("fork, %s: %v", when, err)
			}
		}
		refused("in progress", "")
		close(leave)
		var waiting *turnpike.Waiting
		if err := <-failed; !errors.As(err, &waiting) {
			t.Fatal(err)
		}
		refused("waiting", waiting.RunID)
		if err := s.Cancel(t.Context(), waiting.RunID); err != nil {
			t.Fatal(err)
		}
		if err := s.Rewind(t.Context(), waiting.RunID); err != nil || texts(t, s) != "" {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// A rewound session and its fork hold after a restart, and a run that was taken out is not resumed.
func TestARewoundSessionAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	m := turnpiketest.Model(t, turnpiketest.Say("One."), turnpiketest.Call("weather", city{"Bern"}), turnpiketest.Say("Three."))
	agent := func(rounds int) *turnpike.Agent {
		return &turnpike.Agent{Model: m, Store: store, Tools: []tool.Tool{weather()}, Limits: turnpike.Limits{Rounds: rounds}}
	}
	if _, err := agent(1).Session("s").Run(t.Context(), turnpike.Text("1")); err != nil {
		t.Fatal(err)
	}
	var limit *turnpike.LimitError
	if _, err := agent(1).Session("s").Run(t.Context(), turnpike.Text("2")); !errors.As(err, &limit) {
		t.Fatal(err)
	}
	second := limit.Result().RunID
	store = reopen(t, store, path)
	if _, err := agent(1).Session("s").Fork(t.Context(), "f"); err != nil {
		t.Fatal(err)
	}
	if err := agent(1).Session("s").Rewind(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	store = reopen(t, store, path)
	var refused *turnpike.ResumeError
	for _, resumed := range []*turnpike.Stream{agent(3).Resume(t.Context(), second), agent(3).Session("f").Resume(t.Context(), second)} {
		if _, err := resumed.Result(); !errors.As(err, &refused) {
			t.Errorf("resumed: %v", err)
		}
	}
	if _, err := agent(3).Session("s").Run(t.Context(), turnpike.Text("3")); err != nil {
		t.Fatal(err)
	}
	if got := prompt(m.Requests()[2].Items); got != "user 1; assistant One.; user 3" {
		t.Errorf("asked %q", got)
	}
	if kept := collect(t, agent(1).Sessions(t.Context(), turnpike.Program())); len(kept) != 2 || kept[0].ID != "s" || kept[1].ID != "f" {
		t.Errorf("the sessions are %+v", kept)
	}
	turns, err := agent(1).Session("f").Turns(t.Context())
	if err != nil || len(turns) != 5 || turns[4].RunID != second {
		t.Errorf("the fork has %+v, %v", turns, err)
	}
}
