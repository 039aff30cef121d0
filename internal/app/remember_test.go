package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// sessionQuestion asks in a session, with more members.
func sessionQuestion(session, more string) string {
	return strings.Replace(streamedGatedQuestion, `,"messages"`, fmt.Sprintf(`,"session_id":%q%s,"messages"`, session, more), 1)
}

// agentDecide sends a decision of the agentic runtime.
func (g *gated) agentDecide(id, key, body string, status int) map[string]any {
	g.t.Helper()
	return g.do("POST", "/v1/agent/approvals/"+id, key, body, status)
}

// A call that is approved for the session is asked for once: in the run, in later runs, after a restart and for other
// arguments. Another session, another tool and the session after its deletion are asked again. // H11
func TestAnApprovalIsRememberedInTheSession(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	g.upstream.answer = script(
		asks(call{"delete", `{"n":1}`}), asks(call{"delete", `{"n":2}`}), says("one"),
		asks(call{"delete", `{"n":3}`}), says("two"),
		asks(call{"delete", `{"n":4}`}), says("three"),
		asks(call{"look", `{}`}), says("four"),
		asks(call{"delete", `{"n":5}`}), says("five"),
		asks(call{"delete", `{"n":6}`}), says("six"))
	answered := func(answers <-chan answer, want string, calls int) {
		t.Helper()
		if a := wait(t, answers, "the answer"); a.status != 200 || a.stream(t).text != want || g.executed() != calls {
			t.Errorf("%d %s; %d calls", a.status, a.body, g.executed())
		}
	}
	const remember, once = `{"decision":"approve","remember_for_session":true}`, `{"decision":"approve"}`
	answers := g.ask(sessionQuestion("s", ""))
	first := g.only()
	if got := g.agentDecide(first, "approver-key", remember, 200); got["status"] != "resolved" || got["approval_id"] != first {
		t.Errorf("the decision is %v", got)
	}
	answered(answers, "one", 2)
	answered(g.ask(sessionQuestion("s", "")), "two", 3)
	if err := g.stop(); err != nil {
		t.Fatal(err)
	}
	g.documented = manage(mustRunIn(t, g.data, g.yaml, environment()))
	answered(g.ask(sessionQuestion("s", "")), "three", 4)
	for i, one := range []string{"s", "other"} { // another tool, another session
		answers := g.ask(sessionQuestion(one, ""))
		g.agentDecide(g.only(), "approver-key", once, 200)
		answered(answers, []string{"four", "five"}[i], 5+i)
	}
	g.do("DELETE", "/v1/sessions/s", "owner-key", "", 200)
	answers = g.ask(sessionQuestion("s", ""))
	g.agentDecide(g.only(), "approver-key", once, 200)
	answered(answers, "six", 7)
}

// What a decision of the agentic runtime cannot say, and who may not decide. // H10 H11
func TestWrongDecisionsOfTheAgenticRuntime(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	answers := g.ask(streamedGatedQuestion) // without a session
	id := g.only()
	for body, want := range map[string]string{
		`{}`:                   "decision",
		`{"decision":"maybe"}`: "decision",
		`{"decision":"approve","remember_for_session":"yes"}`: "remember_for_session",
		`{"decision":"deny","remember_for_session":true}`:     "only an approval",
		`{"decision":"approve","remember_for_session":true}`:  "the run has no session",
		`{"decision":"approve","reason":"x"}`:                 "reason",
		`{"decision":"approve","early":1}`:                    "early",
	} {
		if got := fmt.Sprint(g.agentDecide(id, "approver-key", body, 400)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", body, got)
		}
	}
	for _, c := range [][2]string{{id, "member-key"}, {"appr_0", "owner-key"}, {"run_0", "approver-key"}} {
		if got := g.agentDecide(c[0], c[1], `{"decision":"approve"}`, 404); got["status"] != "not_found" || got["error"] == nil {
			t.Errorf("%v: %v", c, got)
		}
	}
	g.agentDecide(id, "approver-key", `{"decision":"deny","message":"not today"}`, 200)
	g.agentDecide(id, "approver-key", `{"decision":"deny"}`, 200)
	g.agentDecide(id, "approver-key", `{"decision":"approve"}`, 409)
	if a := wait(t, answers, "the answer"); a.stream(t).text != "done" || !strings.Contains(g.told(), "not today") || g.executed() != 0 {
		t.Errorf("%s; the model read %s", a.body, g.told())
	}
}

// A member decides what only its own request asks for. // H08 H10
func TestAMemberDecidesWhatItsRequestAsksFor(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "", "enabled: true")
	asking := asks(call{"delete", `{"n":1}`})
	g.upstream.answer = script(asking, says("one"), asking, says("two"))
	const ask = `,"agent_permission":"ask"`
	member := []string{"Authorization", "Bearer member-key"}
	answers := g.ask(sessionQuestion("s", ask), member...)
	g.agentDecide(g.only(), "member-key", `{"decision":"approve","remember_for_session":true}`, 200)
	for i := range 2 {
		if a := wait(t, answers, "the answer"); a.status != 200 || g.executed() != 1+i {
			t.Fatalf("%d %s", a.status, a.body)
		}
		if i == 0 {
			answers = g.ask(sessionQuestion("s", ask), member...)
		}
	}
}

// A decision that comes before its call is asked for is kept, and nothing waits. // H10
func TestACallOfChatIsDecidedEarly(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	asked, release, quit := make(chan bool), make(chan bool), make(chan bool)
	scripted := script(asks(call{"delete", `{"n":1}`}), asks(call{"delete", `{"n":2}`}), says("done"))
	g.upstream.answer = func(w http.ResponseWriter, r *http.Request, got received) {
		for _, step := range []func(){
			func() {
				select {
				case asked <- true:
				case <-quit:
				}
			},
			func() {
				select {
				case <-release:
				case <-quit:
				}
			},
		} {
			step()
		}
		scripted(w, r, got)
	}
	t.Cleanup(func() { close(quit) })
	answers := g.ask(sessionQuestion("s", ""))
	wait(t, asked, "a call of the model")
	runID := fmt.Sprint(objects(g.do("GET", "/v1/runs?limit=1", "owner-key", "", 200))[0]["id"])
	g.agentDecide(runID, "member-key", `{"decision":"approve","early":true}`, 404)
	if got := g.agentDecide(runID, "approver-key", `{"decision":"approve"}`, 409); got["error"].(map[string]any)["code"] != "nothing_waits" {
		t.Errorf("a decision that is not early: %v", got)
	}
	if got := g.agentDecide(runID, "approver-key", `{"decision":"approve","early":true,"remember_for_session":true}`, 200); got["status"] != "queued" {
		t.Errorf("the decision is %v", got)
	}
	for range 2 {
		release <- true
		wait(t, asked, "a call of the model: nothing waits")
	}
	release <- true
	if a := wait(t, answers, "the answer"); a.stream(t).text != "done" || g.executed() != 2 {
		t.Errorf("%d %s", a.status, a.body)
	}
	g.agentDecide(runID, "approver-key", `{"decision":"approve"}`, 404)
}
