//go:build unix

package crash_test

import (
	"context"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/crash"
)

// approvals returns answers that approve all that a response asks for.
func (o responseObject) approvals() (answers []any) {
	for _, it := range o.Output {
		if it.Type == "mcp_approval_request" {
			answers = append(answers, map[string]any{"type": "mcp_approval_response", "approval_request_id": it.ID, "approve": true})
		}
	}
	return answers
}

// insistOnEnd sends a request whose calls wait for approval, approves them response by response,
// and sends whatever is not answered again. The result is the last response.
func (w *world) insistOnEnd(q asked) <-chan reply {
	got := make(chan reply, 1)
	go func() {
		for {
			all := <-w.insistOnResponse(q)
			r := all[len(all)-1]
			answers := r.object.approvals()
			if r.status != http.StatusOK || len(answers) == 0 {
				got <- r
				return
			}
			q = asked{stream: q.stream, gated: true, previous: r.object.ID, answers: answers}
		}
	}()
	return got
}

// approvalCases kill the gateway between a question and its answer, during the decision, and
// around the calls that were approved.
func approvalCases() (points []string) {
	for n := 1; n <= 2; n++ { // the rounds that ask
		points = append(points, nth(crash.AfterPark, n), nth(crash.AfterDecision, n))
	}
	for n := 1; n <= 4; n++ { // look, order, send; send
		points = append(points, nth(crash.AfterCallIntent, n), nth(crash.AfterCallSend, n), nth(crash.AfterResult, n))
	}
	return append(points, nth(crash.AfterClaim, 1), nth(crash.AfterClaim, 2), nth(crash.AfterTurn, 2), nth(crash.BeforeFinish, 1), nth(crash.AfterFinish, 1))
}

// A response whose calls wait for approval is killed before, while and after a person decides. The
// client goes on with what it knows: every call is made, and none twice that must not be
// repeated. // H12 P02
func TestApprovalsSurviveCrashes(t *testing.T) {
	t.Parallel()
	for i, point := range approvalCases() {
		for _, stream := range []bool{false, true} {
			if testing.Short() && (i%5 != 1 || !stream) || !testing.Short() && stream != (i%2 == 0) {
				continue
			}
			t.Run(point, func(t *testing.T) {
				t.Parallel()
				w, _ := newErrand(t, "", "")
				first := w.start(point)
				got := w.insistOnEnd(asked{stream: stream, key: "gated-1", gated: true})
				first.wantKilled(t, "which passes "+point)
				w.start("")
				r := await(t, "the last response", got)
				_, fates := w.judge("complete")
				if r.status != http.StatusOK || r.object.Status != "completed" || r.object.text() != expected(fates) {
					t.Errorf("answered %d %s, %+v, want %q", r.status, r.code, r.object, expected(fates))
				}
			})
		}
	}
}

// A decision that is made on the command line while no gateway runs is carried out when one
// starts.
func TestADecisionWithoutAGatewayIsCarriedOut(t *testing.T) {
	t.Parallel()
	w, _ := newErrand(t, "", "")
	first := w.start("")
	all := await(t, "a question", w.insistOnResponse(asked{key: "gated-2", gated: true}))
	asking := all[len(all)-1].object
	if len(asking.approvals()) == 0 {
		t.Fatalf("%+v", all)
	}
	first.kill()
	for _, it := range asking.Output {
		if id, is := strings.CutPrefix(it.ID, "mcpr_"); is {
			w.decideOnCommandLine("approve", "appr_"+id)
		}
	}
	if n := len(w.tools.Calls()); n != 0 {
		t.Fatalf("%d calls without a gateway", n)
	}
	w.start("")
	eventually(t, "the approved calls are made", func() bool { return len(w.tools.Calls()) >= 3 })
	q := asked{gated: true, previous: asking.ID, answers: asking.approvals()}
	r := await(t, "the last response", w.insistOnEnd(q))
	_, fates := w.judge("complete")
	if r.object.Status != "completed" || r.object.text() != expected(fates) {
		t.Errorf("answered %d %s, %+v, want %q", r.status, r.code, r.object, expected(fates))
	}
}

// decideOnCommandLine decides an approval with the program, and without the API of a gateway.
func (w *world) decideOnCommandLine(decision, id string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, w.binary(), "approvals", decision, id, "--config", w.config, "--url", w.base())
	cmd.Env = append(baseEnv(), "TURNPIKE_KEY="+ownKey, "OWNER_KEY="+ownKey, "PROVIDER_KEY="+providerKey)
	if text, err := cmd.CombinedOutput(); err != nil {
		w.Fatalf("approvals %s: %v: %s", decision, err, text)
	}
}
