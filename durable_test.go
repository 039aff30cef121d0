package turnpike_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func reopen(t *testing.T, s *sqlite.Store, path string) *sqlite.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, path)
}

// A run waits in a store, and goes on after the store was opened again.
func TestAnApprovalAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	paid := 0
	var by tool.Caller
	agent := func(s turnpike.Store, story string) *turnpike.Agent {
		return &turnpike.Agent{
			Model: turnpiketest.NewScript(t, story), Store: s, Instructions: "Pay.",
			Tools: []tool.Tool{tool.Func("pay", "", func(ctx context.Context, in struct {
				Cents int `json:"cents"`
			}) (string, error) {
				paid += in.Cents
				by = tool.From(ctx).Caller
				return "paid", nil
			}).ApproveIf(func(in struct {
				Cents int `json:"cents"`
			}) bool {
				return in.Cents > 100
			})},
		}
	}
	ada := turnpike.Caller{ID: "ada", Permissions: []string{"pay"}}
	a := agent(store, "text Two.\ncall c1 pay {\"cents\":500}\ncall c2 pay {\"cents\":50}\ncall c3 pay {\"cents\":700}\n")
	_, err := a.Run(t.Context(), turnpike.Text("pay"), turnpike.As(ada))
	var waiting *turnpike.Waiting
	if !errors.As(err, &waiting) || len(waiting.Approvals) != 2 || paid != 50 ||
		string(waiting.Approvals[0].Arguments) != `{"cents":500}` ||
		waiting.Status() != 202 {
		t.Fatalf("%#v, paid %d", err, paid)
	}
	if left := time.Until(waiting.Approvals[0].ExpiresAt); left < 6*24*time.Hour || left > 7*24*time.Hour {
		t.Errorf("expires in %v", left)
	}
	store = reopen(t, store, path)
	a = agent(store, "text Done.\n")
	if _, err := a.Resume(t.Context(), waiting.RunID, turnpike.Approve("appr_x")).
		Result(); err == nil ||
		err.(turnpike.Failure).Status() != 404 {
		t.Error(err)
	}
	_, err = a.Resume(t.Context(), waiting.RunID, turnpike.Approve(waiting.Approvals[0].ID)).Result()
	var still *turnpike.Waiting
	if !errors.As(err, &still) || len(still.Approvals) != 1 || still.Approvals[0].ID != waiting.Approvals[1].ID ||
		string(still.Approvals[0].Arguments) != `{"cents":700}` ||
		paid != 50 {
		t.Fatalf("%#v", err)
	}
	if _, err := a.Resume(t.Context(), waiting.RunID, turnpike.Deny(waiting.Approvals[0].ID, "")).
		Result(); err == nil ||
		err.(turnpike.Failure).Status() != 409 {
		t.Error(err)
	}
	s := a.Resume(t.Context(), waiting.RunID, turnpike.Deny(waiting.Approvals[1].ID, "too much"))
	var kinds []string
	for e, err := range s.Events() {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Type())
	}
	r, err := s.Result()
	if err != nil || r.Text != "Done." || r.RunID != waiting.RunID || paid != 550 || by.ID != "ada" || !by.May("pay") {
		t.Fatalf("%+v, %v; paid %d for %+v; %v", r, err, paid, by, kinds)
	}
	got := calls(r)
	if len(got) != 3 || got[0].Result != "paid" || got[1].Result != "paid" || !strings.Contains(got[2].Result, "too much") ||
		r.Steps[0].Text != "Two." {
		t.Errorf("%+v", r.Steps)
	}
	again, err := a.Resume(t.Context(), waiting.RunID).Result()
	if err != nil || again.Text != "Done." || len(again.Items) != len(r.Items) {
		t.Errorf("a run that has ended: %+v, %v", again, err)
	}
}

// A run that has reached a limit goes on when the limit is higher.
func TestARaisedLimit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	script := turnpiketest.NewScript(t, endless)
	agent := func(rounds int) *turnpike.Agent {
		return &turnpike.Agent{
			Model:        script,
			Store:        store,
			Tools:        []tool.Tool{weather()},
			Instructions: "Go.",
			Limits:       turnpike.Limits{Rounds: rounds, Tokens: 10_000},
		}
	}
	var limit *turnpike.LimitError
	if _, err := agent(2).Run(t.Context(), turnpike.Text("go")); !errors.As(err, &limit) {
		t.Fatal(err)
	}
	id := limit.Result().RunID
	if _, err := agent(2).Resume(t.Context(), id).Result(); !errors.As(err, &limit) || limit.Result().RunID != id {
		t.Errorf("the same limit: %v", err)
	}
	store = reopen(t, store, path)
	r, err := agent(4).Resume(t.Context(), id).Result()
	if err != nil || r.Text != "Done." || r.Rounds != 2 || r.RunID == id {
		t.Fatalf("%+v, %v", r, err)
	}
	last := script.Requests()[3].Items
	if last[0].Text() != "Go." || last[1].Text() != "go" || len(last) != 2+3*2 {
		t.Errorf("%d items: %+v", len(last), last)
	}
}

// What a crash breaks off goes on: see also the tests that kill the process.
func TestARunThatIsCancelledOnDisk(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	ctx, cancel := context.WithCancel(t.Context())
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, "call c1 stop {}\n"), Store: store, Tools: []tool.Tool{
		tool.Func("stop", "", func(ctx context.Context, _ struct{}) (string, error) { cancel(); return "", ctx.Err() }),
	}}
	_, err := a.Run(ctx, turnpike.Text("go"))
	var abort *turnpike.AbortError
	if !errors.As(err, &abort) {
		t.Fatal(err)
	}
	if _, err := a.Resume(t.Context(), abort.Result().RunID).Result(); !errors.As(err, &abort) {
		t.Errorf("it has ended as cancelled, and Resume says %v", err)
	}
}

// A run that Start begins goes on without its caller. Its events have positions.
func TestARunAfterItsStoreWasClosed(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "runs.db"))
	if err != nil {
		t.Fatal(err)
	}
	newAgent := func() *turnpike.Agent {
		return &turnpike.Agent{Model: turnpiketest.NewScript(t, "text Done.\nagain"), Store: store}
	}
	used := newAgent()
	if _, err := used.Run(t.Context(), turnpike.Text("go")); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]*turnpike.Agent{"used before": used, "new": newAgent()} {
		var lost *turnpike.LostError
		_, err := a.Run(t.Context(), turnpike.Text("go"))
		if !errors.As(err, &lost) || !strings.Contains(err.Error(), "store is closed") || strings.Contains(err.Error(), "gateway") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStartAndFollow(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	gate := make(chan struct{})
	a := &turnpike.Agent{
		Model: turnpiketest.NewScript(t, "text Wait.\ncall c1 gate {}\n\ntext Done.\n\ncall c2 gate {}\n"),
		Store: store,
		Tools: []tool.Tool{
			tool.Func("gate", "", func(ctx context.Context, _ struct{}) (string, error) {
				select {
				case <-gate:
					return "open", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}),
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	id, err := a.Start(ctx, turnpike.Text("go"))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	s := a.Follow(t.Context(), id, event.Position{})
	for e := range events(s) {
		if e.Type() == "tool_started" {
			break
		}
	}
	if _, err := a.Resume(t.Context(), id).Result(); err == nil || err.(turnpike.Failure).Status() != 409 {
		t.Errorf("in progress: %v", err)
	}
	close(gate)
	s = a.Follow(t.Context(), id, s.Position())
	var kinds []string
	for e, err := range s.Events() {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, e.Type())
	}
	if r, err := s.Result(); err != nil || r.Text != "Done." ||
		strings.Join(kinds, " ") != "tool_done round_started text_delta round_done finished" {
		t.Errorf("%+v, %v, %v", r, err, kinds)
	}
	gate = make(chan struct{})
	if id, err = a.Start(t.Context(), turnpike.Text("go")); err != nil {
		t.Fatal(err)
	}
	s = a.Follow(t.Context(), id, event.Position{})
	for e, err := range s.Events() {
		if err == nil && e.Type() == "tool_started" {
			if err := a.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := s.Result(); !errors.As(err, new(*turnpike.AbortError)) {
		t.Error(err)
	}
}

// A store that is closed hands the runs over that Start has begun.
func TestAStartedRunAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	entered := make(chan struct{})
	agent := func(s turnpike.Store, story string, f func(context.Context, struct{}) (string, error)) *turnpike.Agent {
		return &turnpike.Agent{Model: turnpiketest.NewScript(t, story), Store: s, Tools: []tool.Tool{tool.Func("look", "", f).ReadOnly()}}
	}
	id, err := agent(store, "call c1 look {}\n", func(ctx context.Context, _ struct{}) (string, error) {
		close(entered)
		<-ctx.Done()
		return "", ctx.Err()
	}).Start(t.Context(), turnpike.Text("go"))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	store = reopen(t, store, path)
	var attempt int
	r, err := agent(store, "text Seen.\n", func(ctx context.Context, _ struct{}) (string, error) {
		attempt = tool.From(ctx).Attempt
		return "it", nil
	}).Resume(t.Context(), id).Result()
	if err != nil || r.Text != "Seen." || attempt != 2 || calls(r)[0].Result != "it" {
		t.Errorf("%+v, %v, attempt %d", r, err, attempt)
	}
}

// Two runs with one key, one call. // P39
func TestRunsWithOneKey(t *testing.T) {
	for _, stored := range []bool{false, true} {
		var store turnpike.Store
		if stored {
			store = open(t, filepath.Join(t.TempDir(), "runs.db"))
		}
		type order struct {
			ID string `json:"id"`
		}
		var paid []string
		fails := true
		pay := tool.Func("pay", "", func(ctx context.Context, in order) (string, error) {
			if in.ID == "fails" && fails {
				return "", errors.New("no money")
			}
			paid = append(paid, tool.From(ctx).IdempotencyKey)
			return "receipt " + tool.From(ctx).RunID, nil
		}).Key(func(in order) string { return in.ID }).Price(turnpike.USD("0.10"))
		one := func(id string) turnpiketest.Step { return turnpiketest.Call("pay", order{id}) }
		a := &turnpike.Agent{
			Model: turnpiketest.Model(
				t,
				one("A"),
				turnpiketest.Say("x"),
				turnpiketest.Turn(one("A"), one("B"), one("B")),
				turnpiketest.Say("x"),
				one("fails"),
				turnpiketest.Say("x"),
				one("fails"),
				turnpiketest.Say("x"),
			),
			Tools: []tool.Tool{pay},
			Store: store,
		}
		first, second := mustRun(t, a), mustRun(t, a)
		got := calls(second)
		if got[0].Result != "receipt "+first.RunID || got[1].Result != "receipt "+second.RunID || got[2].Result != got[1].Result ||
			strings.Join(paid, " ") != "pay:A pay:B" {
			t.Errorf("%+v; paid %q", got, paid)
		}
		if got[0].Outcome != event.CallCached || second.Cost.String() != "0.1" { // for B, once
			t.Errorf("%+v cost %s", got, second.Cost)
		}
		if r := mustRun(t, a); !calls(r)[0].Error {
			t.Errorf("%+v", r)
		}
		fails = false
		if r := mustRun(t, a); calls(r)[0].Error || len(paid) != 3 {
			t.Errorf("a call that has failed had no effect: %+v", r)
		}
	}
}

// A call whose outcome is unknown can be made again in the same run, with the same key.
func TestAnUnknownEffectIsMadeAgain(t *testing.T) {
	attempts := 0
	pay := tool.Func("pay", "", func(ctx context.Context, _ struct{}) (string, error) {
		if attempts++; attempts == 1 {
			panic("midway")
		}
		return tool.From(ctx).IdempotencyKey, nil
	}).Key(func(struct{}) string { return "A" })
	a := &turnpike.Agent{
		Model: turnpiketest.Model(t, turnpiketest.Call("pay", nil), turnpiketest.Call("pay", nil), turnpiketest.Say("x")),
		Tools: []tool.Tool{pay},
	}
	if got := calls(mustRun(t, a)); got[0].Outcome != event.CallUnknown || got[1].Result != "pay:A" || attempts != 2 {
		t.Errorf("%+v", got)
	}
}

// A run without a caller appends all its turns, and nothing of it stays when the store is closed.
func TestTheConversationOfAStartedRun(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	l := &log{}
	a := &turnpike.Agent{Model: turnpiketest.NewScript(t, story), Tools: []tool.Tool{weather()}, Store: store, Conversation: l}
	id, err := a.Start(t.Context(), turnpike.Text("Warm?"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Follow(t.Context(), id, event.Position{}).Result(); err != nil {
		t.Fatal(err)
	}
	for l.len() < 4 && t.Context().Err() == nil { // the last turn follows the last event
		runtime.Gosched()
	}
	if got := l.String(); !strings.HasSuffix(got, "3 assistant: It is sunny.; ") {
		t.Error(got)
	}
}

// The runs of a store after a restart: what waits, and what was broken off.
func TestTheRunsOfAStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	m := turnpiketest.Model(
		t,
		turnpiketest.Say("Done."),
		turnpiketest.Call("pay", nil),
		turnpiketest.Call("look", nil),
		turnpiketest.Say("Seen."),
	)
	entered := make(chan struct{})
	agent := func(look func(context.Context, struct{}) (string, error)) *turnpike.Agent {
		pay := tool.Func("pay", "", func(context.Context, struct{}) (string, error) { return "paid", nil }).
			ApproveIf(func(struct{}) bool { return true })
		return &turnpike.Agent{Model: m, Store: store, Tools: []tool.Tool{pay, tool.Func("look", "", look).ReadOnly()}}
	}
	a := agent(func(ctx context.Context, _ struct{}) (string, error) {
		close(entered)
		<-ctx.Done()
		return "", ctx.Err()
	})
	done := mustRun(t, a).RunID
	var waiting *turnpike.Waiting
	if _, err := a.Run(
		t.Context(),
		turnpike.Text("pay"),
		turnpike.As(turnpike.Caller{ID: "ada", Permissions: []string{"pay"}}),
	); !errors.As(
		err,
		&waiting,
	) {
		t.Fatal(err)
	}
	broken, err := a.Start(t.Context(), turnpike.Text("look"))
	if err != nil {
		t.Fatal(err)
	}
	<-entered
	runs := func(f turnpike.RunFilter) (out string) {
		for _, r := range collect(t, a.Runs(t.Context(), f)) {
			name := map[string]string{done: "done", waiting.RunID: "pay", broken: "look"}[r.ID]
			out += fmt.Sprint(name, " ", r.State, " ", r.Reason, " ", r.Caller, "; ")
		}
		return out
	}
	if got := runs(
		turnpike.RunFilter{States: []turnpike.RunState{turnpike.RunInProgress, turnpike.RunBroken}},
	); got != "look in_progress  program; " {
		t.Error(got)
	}
	store = reopen(t, store, path)
	a = agent(func(context.Context, struct{}) (string, error) { return "it", nil })
	if got := runs(turnpike.RunFilter{}); got != "look broken  program; pay waits  ada; done ended stop program; " {
		t.Error(got)
	}
	if got := runs(
		turnpike.RunFilter{Caller: "ada"},
	) + runs(
		turnpike.RunFilter{Since: time.Now().Add(time.Hour)},
	); got != "pay waits  ada; " {
		t.Error(got)
	}
	for r, err := range a.Runs(t.Context(), turnpike.RunFilter{States: []turnpike.RunState{turnpike.RunBroken}}) {
		if err != nil {
			t.Fatal(err)
		}
		if r, err := a.Resume(t.Context(), r.ID).Result(); err != nil || r.Text != "Seen." {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if got := runs(turnpike.RunFilter{States: []turnpike.RunState{turnpike.RunBroken}}); got != "" {
		t.Error(got)
	}
	for _, err := range a.Runs(t.Context(), turnpike.RunFilter{States: []turnpike.RunState{"lost"}}) {
		if !errors.As(err, new(*turnpike.ValidationError)) {
			t.Error(err)
		}
	}
}

// A program with several agents and one store finds which of them resumes a run, and its session.
func TestARunNamesItsAgentAndItsSession(t *testing.T) {
	store := open(t, filepath.Join(t.TempDir(), "runs.db"))
	agent := func(name string, policy int) *turnpike.Agent {
		a := &turnpike.Agent{Name: name, Model: turnpiketest.Model(t, turnpiketest.Say("Done.")), Store: store}
		for i := range policy { // the first fact is large
			a.Sources = append(a.Sources, labelled{turnpiketest.NewSource(), fmt.Sprint(strings.Repeat("s", 200), i)})
		}
		return a
	}
	clerk, other := agent("clerk", 0), agent("", 40)
	if _, err := clerk.Session("window 7").Run(t.Context(), turnpike.Text("Hello.")); err != nil {
		t.Fatal(err)
	}
	mustRun(t, other)
	for name, want := range map[string]string{"": "agent/; clerk/window 7; ", "clerk": "clerk/window 7; "} {
		got := ""
		for _, r := range collect(t, other.Runs(t.Context(), turnpike.RunFilter{Agent: name})) {
			got += r.Agent + "/" + r.Session + "; "
		}
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

type labelled struct {
	*turnpiketest.Source
	name string
}

func (l labelled) Name() string { return l.name }

// The result of a run that has ended can be read again, also after a restart. Its steps say how each call ended.
func TestTheResultOfARunThatHasEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "runs.db")
	store := open(t, path)
	if _, err := sqlite.Open(path); err == nil || !strings.HasSuffix(err.Error(), "or this one has; agents of one process share a Store") {
		t.Error(err)
	}
	lost := tool.Func("lost", "", func(context.Context, struct{}) (string, error) { panic("midway") })
	agent := func(turns ...turnpiketest.Step) *turnpike.Agent {
		return &turnpike.Agent{Model: turnpiketest.Model(t, turns...), Tools: []tool.Tool{lost, weather()}, Store: store}
	}
	city := map[string]string{"city": "Bern"}
	both := turnpiketest.Turn(turnpiketest.Call("lost", nil), turnpiketest.Call("weather", city))
	id := mustRun(t, agent(both, turnpiketest.Say("Done."))).RunID
	store = reopen(t, store, path)
	a := agent()
	for what, s := range map[string]*turnpike.Stream{
		"Resume": a.Resume(t.Context(), id),
		"Follow": a.Follow(t.Context(), id, event.Position{}),
	} {
		r, err := s.Result()
		if err != nil {
			t.Fatal(what, err)
		}
		if got := calls(r); r.Text != "Done." || got[0].Outcome != event.CallUnknown || got[1].Outcome != event.CallOK || got[1].Took <= 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Run(t.Context(), turnpike.Text("go")); err == nil || !strings.Contains(err.Error(), "the agent's store is closed") {
		t.Error(err)
	}
	forgetful := &turnpike.Agent{Model: turnpiketest.Model(t, turnpiketest.Say("x"))}
	id = mustRun(t, forgetful).RunID
	_, err := forgetful.Resume(t.Context(), id).Result()
	want := "run " + id + ": not found: the Store does not have it; an agent without a Store forgets a run when it has ended"
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}
