package approvals_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// sessionQuestion asks in a session, with more members.
func sessionQuestion(session, more string) string {
	return strings.Replace(StreamedGatedQuestion, `,"messages"`, fmt.Sprintf(`,"session_id":%q%s,"messages"`, session, more), 1)
}

// A call that is approved for the session is asked for once: in the run, in later runs, after a restart and for other
// arguments. Another session, another tool and the session after its deletion are asked again. // H11
func TestAnApprovalIsRememberedInTheSession(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	g.Upstream.Answer = Script(
		Asks(Use("delete", `{"n":1}`)), Asks(Use("delete", `{"n":2}`)), Says("one"),
		Asks(Use("delete", `{"n":3}`)), Says("two"),
		Asks(Use("delete", `{"n":4}`)), Says("three"),
		Asks(Use("look", `{}`)), Says("four"),
		Asks(Use("delete", `{"n":5}`)), Says("five"),
		Asks(Use("delete", `{"n":6}`)), Says("six"))
	answered := func(answers <-chan Answer, want string, calls int) {
		t.Helper()
		if a := Wait(t, answers, "the answer"); a.Status != 200 || a.Stream(t).Text != want || g.Executed() != calls {
			t.Errorf("%d %s; %d calls", a.Status, a.Body, g.Executed())
		}
	}
	const remember, once = `{"decision":"approve","remember_for_session":true}`, `{"decision":"approve"}`
	answers := g.Ask(sessionQuestion("s", ""))
	first := g.Only()
	if got := agentDecide(g, first, "approver-key", remember, 200); got["status"] != "resolved" || got["approval_id"] != first {
		t.Errorf("the decision is %v", got)
	}
	answered(answers, "one", 2)
	answered(g.Ask(sessionQuestion("s", "")), "two", 3)
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	g.Documented = Manage(MustRunIn(t, g.Data, g.Yaml, Environment()))
	answered(g.Ask(sessionQuestion("s", "")), "three", 4)
	for i, one := range []string{"s", "other"} { // another tool, another session
		answers := g.Ask(sessionQuestion(one, ""))
		agentDecide(g, g.Only(), "approver-key", once, 200)
		answered(answers, []string{"four", "five"}[i], 5+i)
	}
	g.Do("DELETE", "/v1/sessions/s", "owner-key", "", 200)
	answers = g.Ask(sessionQuestion("s", ""))
	agentDecide(g, g.Only(), "approver-key", once, 200)
	answered(answers, "six", 7)
}

// What a decision of the agentic runtime cannot say, and who may not decide. // H10 H11
func TestWrongDecisionsOfTheAgenticRuntime(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	answers := g.Ask(StreamedGatedQuestion) // without a session
	id := g.Only()
	for body, want := range map[string]string{
		`{}`:                   "decision",
		`{"decision":"maybe"}`: "decision",
		`{"decision":"approve","remember_for_session":"yes"}`: "remember_for_session",
		`{"decision":"deny","remember_for_session":true}`:     "only an approval",
		`{"decision":"approve","remember_for_session":true}`:  "the run has no session",
		`{"decision":"approve","reason":"x"}`:                 "reason",
		`{"decision":"approve","early":1}`:                    "early",
	} {
		if got := fmt.Sprint(agentDecide(g, id, "approver-key", body, 400)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", body, got)
		}
	}
	for _, c := range [][2]string{{id, "member-key"}, {"appr_0", "owner-key"}, {"run_0", "approver-key"}} {
		if got := agentDecide(g, c[0], c[1], `{"decision":"approve"}`, 404); got["status"] != "not_found" || got["error"] == nil {
			t.Errorf("%v: %v", c, got)
		}
	}
	agentDecide(g, id, "approver-key", `{"decision":"deny","message":"not today"}`, 200)
	agentDecide(g, id, "approver-key", `{"decision":"deny"}`, 200)
	agentDecide(g, id, "approver-key", `{"decision":"approve"}`, 409)
	if a := Wait(t, answers, "the answer"); a.Stream(t).Text != "done" || !strings.Contains(g.Told(), "not today") || g.Executed() != 0 {
		t.Errorf("%s; the model read %s", a.Body, g.Told())
	}
}

// A member decides what only its own request asks for. // H08 H10
func TestAMemberDecidesWhatItsRequestAsksFor(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "", "enabled: true")
	asking := Asks(Use("delete", `{"n":1}`))
	g.Upstream.Answer = Script(asking, Says("one"), asking, Says("two"))
	const ask = `,"agent_permission":"ask"`
	member := []string{"Authorization", "Bearer member-key"}
	answers := g.Ask(sessionQuestion("s", ask), member...)
	agentDecide(g, g.Only(), "member-key", `{"decision":"approve","remember_for_session":true}`, 200)
	for i := range 2 {
		if a := Wait(t, answers, "the answer"); a.Status != 200 || g.Executed() != 1+i {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if i == 0 {
			answers = g.Ask(sessionQuestion("s", ask), member...)
		}
	}
}

// A decision that comes before its call is asked for is kept, and nothing waits. // H10
func TestACallOfChatIsDecidedEarly(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	asked, release, quit := make(chan bool), make(chan bool), make(chan bool)
	scripted := Script(Asks(Use("delete", `{"n":1}`)), Asks(Use("delete", `{"n":2}`)), Says("done"))
	g.Upstream.Answer = func(w http.ResponseWriter, r *http.Request, got Received) {
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
	answers := g.Ask(sessionQuestion("s", ""))
	Wait(t, asked, "a call of the model")
	runID := fmt.Sprint(Objects(g.Do("GET", "/v1/runs?limit=1", "owner-key", "", 200))[0]["id"])
	agentDecide(g, runID, "member-key", `{"decision":"approve","early":true}`, 404)
	if got := agentDecide(g, runID, "approver-key", `{"decision":"approve"}`, 409); got["error"].(map[string]any)["code"] != "nothing_waits" {
		t.Errorf("a decision that is not early: %v", got)
	}
	if got := agentDecide(g, runID, "approver-key", `{"decision":"approve","early":true,"remember_for_session":true}`, 200); got["status"] != "queued" {
		t.Errorf("the decision is %v", got)
	}
	for range 2 {
		release <- true
		Wait(t, asked, "a call of the model: nothing waits")
	}
	release <- true
	if a := Wait(t, answers, "the answer"); a.Stream(t).Text != "done" || g.Executed() != 2 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	agentDecide(g, runID, "approver-key", `{"decision":"approve"}`, 404)
}

// agentDecide sends a decision of the agentic runtime.
func agentDecide(g *Gated, id, key, body string, status int) map[string]any {
	g.T.Helper()
	return g.Do("POST", "/v1/agent/approvals/"+id, key, body, status)
}
