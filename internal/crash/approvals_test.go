//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	for _, point := range sampled(t, approvalCases(), only) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w, _ := newErrand(t, "", "")
			first := w.start(point)
			got := w.insistOnEnd(asked{stream: slices.Index(approvalCases(), point)%2 == 0, key: "gated-1", gated: true})
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

// approveAll approves what waits, as somebody else than the client, until over reports true. The
// gateway may be killed meanwhile.
func (w *world) approveAll(over func() bool) {
	w.Helper()
	eventually(w.T, "everything is decided", func() bool {
		var list struct {
			Data []struct {
				ID        string
				Arguments json.RawMessage
			}
		}
		_ = json.Unmarshal(w.sent(http.MethodGet, "?status=waiting", ""), &list) // empty while no gateway runs
		for _, a := range list.Data {
			if !bytes.Contains(a.Arguments, []byte(`"n"`)) {
				w.Errorf("%s asks for a call with the arguments %s", a.ID, a.Arguments)
			}
			w.sent(http.MethodPost, "/"+a.ID, `{"decision":"approve"}`)
		}
		return over()
	})
}

// sent sends a request about approvals and returns the body of the answer; nil = there is none.
func (w *world) sent(method, path, body string) []byte {
	req, err := http.NewRequestWithContext(w.Context(), method, w.base()+"/v1/approvals"+path, strings.NewReader(body))
	if err != nil {
		return nil
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	data, _ := io.ReadAll(resp.Body)
	return data
}

// haveEnded reports whether no run of the store is in progress.
func (w *world) haveEnded() bool {
	for _, state := range w.runs() {
		if state == "running" || state == "waiting" || state == "paused" {
			return false
		}
	}
	return true
}

// textsOnDisk returns how many files of the data directory have what the errand is about.
func (w *world) textsOnDisk() (n int) {
	w.Helper()
	files, err := filepath.Glob(filepath.Join(w.data, "turnpike.db*"))
	if err != nil {
		w.Fatal(err)
	}
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			w.Fatal(err)
		}
		if bytes.Contains(content, []byte("Run the errand.")) || bytes.Contains(content, []byte("Let me look.")) {
			n++
		}
	}
	return n
}

// A response that is not to be stored is killed before or after its run begins to wait. Before, nothing
// of it is on disk, and it is lost. After, all of it is: every approved call is made, and none
// twice. // H12 P02 G17
func TestARunThatStoresNothingIsKilledAroundItsWait(t *testing.T) {
	t.Parallel()
	type unstored struct {
		point string
		ended string
	}
	for _, c := range sampled(t, []unstored{
		{nth(crash.AfterTurn, 1), "lost"},
		{nth(crash.AfterPark, 1), "complete"},
		{nth(crash.AfterDecision, 2), "complete"},
		{nth(crash.AfterResult, 2), "complete"},
		{nth(crash.AfterPark, 2), "complete"},
	}, func(c unstored) string { return c.ended }) {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			w, _ := newErrand(t, "", "")
			first := w.start(c.point)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go w.respond(ctx, asked{gated: true, unstored: true})
			w.approveAll(func() bool {
				select {
				case <-first.ended:
					return true
				default:
					return false
				}
			})
			first.wantKilled(t, "which passes "+c.point)
			if n := w.textsOnDisk(); (n > 0) != (c.ended != "lost") {
				t.Errorf("%d files have its texts", n)
			}
			w.start("")
			w.approveAll(w.haveEnded)
			w.judge(c.ended)
			if n := len(w.tools.Calls()); c.ended == "lost" && n > 0 || c.ended != "lost" && n < 4 {
				t.Errorf("%d calls", n)
			}
		})
	}
}
