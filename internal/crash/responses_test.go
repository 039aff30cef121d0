//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// asked is one request to the Responses API.
type asked struct {
	input    string // "" = the errand, with the tools of the server
	stream   bool
	key      string
	previous string // id of the response that it continues; empty = none
	answers  []any  // to approval requests
	gated    bool   // every call of the tools waits for approval
	unstored bool   // the request forbids to store it

	background bool
}

// body shows the tools of the MCP server, so that the response has an item for each call.
func (q asked) body() []byte {
	members := map[string]any{
		"model": "m", "stream": q.stream, "input": "Run the errand.", "safety_identifier": strings.Repeat("x", tail),
		"tools": []any{map[string]any{"type": "mcp", "server_label": "tools", "require_approval": "never"}},
	}
	if q.input != "" {
		members["input"] = q.input
		delete(members, "tools")
	}
	if q.previous != "" {
		members["previous_response_id"] = q.previous
	}
	if q.gated {
		members["tools"] = []any{map[string]any{"type": "mcp", "server_label": "tools", "require_approval": "always"}}
	}
	if q.background {
		members["background"] = true
	}
	if q.unstored {
		members["store"] = false
	}
	if q.answers != nil {
		members["input"] = q.answers
	}
	body, _ := json.Marshal(members) // strings and booleans
	return body
}

// reply is what one request for a response got.
type reply struct {
	status int    // 0 where no answer came
	code   string // of an error; "broken" for an answer that stopped in the middle
	said   string // the stream, or the object
	object responseObject
}

// responseObject is a response, as far as the tests look at it.
type responseObject struct {
	ID, Status string
	Output     []struct {
		ID, Type, Status, Name string
		Output                 *string
		Content                []struct{ Text string }
	}
	Usage struct {
		Total int `json:"total_tokens"`
	}
	Error *struct{ Code string }
}

// types are the types of the items, in their order.
func (o responseObject) types() string {
	var types []string
	for _, it := range o.Output {
		types = append(types, it.Type)
	}
	return strings.Join(types, " ")
}

// text is what the last message says.
func (o responseObject) text() string {
	if n := len(o.Output); n > 0 && len(o.Output[n-1].Content) == 1 {
		return o.Output[n-1].Content[0].Text
	}
	return ""
}

// respond sends the request once.
func (w *world) respond(ctx context.Context, q asked) reply {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.base()+"/v1/responses", bytes.NewReader(q.body()))
	if err != nil {
		return reply{code: err.Error()}
	}
	if q.key != "" {
		req.Header.Set("Idempotency-Key", q.key)
	}
	return w.reply(req)
}

// stored asks for a stored response.
func (w *world) stored(ctx context.Context, id string) reply {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base()+"/v1/responses/"+id, nil)
	if err != nil {
		return reply{code: err.Error()}
	}
	return w.reply(req)
}

func (w *world) reply(req *http.Request) reply {
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		return reply{code: "broken"}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	r := reply{status: resp.StatusCode, said: string(data)}
	last := data
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		events, whole := bytes.CutSuffix(data, []byte("\n\ndata: [DONE]\n\n"))
		if !whole {
			r.code = "broken"
			return r
		}
		var end struct{ Response json.RawMessage }
		if err := json.Unmarshal(events[bytes.LastIndex(events, []byte("\ndata: "))+len("\ndata: "):], &end); err != nil {
			r.code = err.Error()
			return r
		}
		last = end.Response
	}
	var failed struct{ Error *struct{ Code string } }
	switch {
	case err != nil || json.Unmarshal(last, &r.object) != nil || json.Unmarshal(last, &failed) != nil:
		r.code = "broken"
	case failed.Error != nil:
		r.code = failed.Error.Code
	}
	return r
}

// insistOnResponse sends the request again and again, in a goroutine, until it is answered.
// The result is the answer, after what was cut off.
func (w *world) insistOnResponse(q asked) <-chan []reply {
	got := make(chan []reply, 1)
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	go func() {
		defer cancel()
		var all []reply
		for {
			r := w.respond(ctx, q)
			if (answer{code: r.code}).final() {
				got <- append(all, r)
				return
			}
			all = append(all, r)
			if pause(ctx, 25*time.Millisecond) != nil {
				got <- all
				return
			}
		}
	}()
	return got
}

// eventsOf are the events of a stream without its comments. The last one may be cut off.
func eventsOf(stream string) (events []string) {
	for event := range strings.SplitSeq(stream, "\n\n") {
		if event != "" && !strings.HasPrefix(event, ":") {
			events = append(events, event)
		}
	}
	return events
}

// storedCase kills the gateway at POINT:N while it answers a request for a stored response.
type storedCase struct {
	point  string
	stream bool
}

// storedCases kill the gateway in each round of a stored response, at points before and after
// its model call and its tool calls.
func storedCases() (cases []storedCase) {
	points := []string{
		nth(crash.AfterAccept, 1), nth(crash.AfterDelta, 2), nth(crash.AfterResult, 2), nth(crash.BeforeFinish, 1), nth(crash.AfterFinish, 1),
	}
	for n := 1; n <= 3; n++ { // the rounds
		points = append(points, nth(crash.AfterModelSend, n), nth(crash.AfterTurn, n))
	}
	for n := 1; n <= 4; n++ { // look, order, send; send
		points = append(points, nth(crash.AfterCallSend, n))
	}
	for _, point := range points {
		cases = append(cases, storedCase{point, false}, storedCase{point, true})
	}
	return cases
}

// A stored response is killed in each of its rounds. The client that sends the request again gets
// the response with the same id, which is stored, can be continued, and has made no call twice
// that must not be repeated. // P01 J09 parity 18
func TestAStoredResponseSurvivesCrashes(t *testing.T) {
	t.Parallel()
	var cut atomic.Int64 // events of streams that were cut off
	t.Run("cases", func(t *testing.T) {
		for _, c := range sampled(t, storedCases(), func(c storedCase) string { return fmt.Sprint(c.stream) }) {
			t.Run(fmt.Sprintf("%s stream=%v", c.point, c.stream), func(t *testing.T) {
				t.Parallel()
				w, _ := newErrand(t, "", "")
				q := asked{stream: c.stream, key: "stored-1"}
				first := w.start(c.point)
				got := w.insistOnResponse(q)
				first.wantKilled(t, "which passes "+c.point)
				w.start("")
				all := await(t, "a response", got)
				_, fates := w.judge("complete")
				cut.Add(int64(w.wantStored(q, all, expected(fates))))
			})
		}
	})
	if soak.Depth(t) == soak.Soak && cut.Load() == 0 {
		t.Error("no stream was cut off after its begin")
	}
}

// wantStored fails the test unless the last reply is the whole response, which every other
// request for it gets, too. It returns how many events the streams had that were cut off.
func (w *world) wantStored(q asked, all []reply, text string) (events int) {
	w.Helper()
	r := all[len(all)-1]
	o := r.object
	const types = "mcp_list_tools message mcp_call mcp_call mcp_call message mcp_call message"
	if r.status != http.StatusOK || o.Status != "completed" || o.types() != types || o.text() != text || o.Usage.Total != 45 {
		w.Fatalf("answered %d %s, %+v, want %q", r.status, r.code, o, text)
	}
	if id := strings.Replace(w.onlyRun(), "run_", "resp_", 1); o.ID != id {
		w.Errorf("the response has the id %s, want %s", o.ID, id)
	}
	for _, before := range all[:len(all)-1] { // what was cut off is how the answer begins
		if id := between(before.said, `"id":"resp_`, `"`); id != "" && "resp_"+id != o.ID {
			w.Errorf("a broken stream had the id %s, the answer %s", id, o.ID)
		}
		if cut, whole := eventsOf(before.said), eventsOf(r.said); before.status == http.StatusOK && q.stream {
			for i, e := range cut {
				if i >= len(whole) || e != whole[i] && (i < len(cut)-1 || !strings.HasPrefix(whole[i], e)) {
					w.Errorf("event %d of a broken stream is\n%s\nand not that of the answer", i, e)
					break
				}
				events++
			}
		}
	}
	calls := len(w.tools.Calls())
	for name, again := range map[string]reply{"the request": w.respond(w.Context(), q), "the id": w.stored(w.Context(), o.ID)} {
		if diff := cmp.Diff(o, again.object); diff != "" || again.status != http.StatusOK {
			w.Errorf("%s gets %d and another response:\n%s", name, again.status, diff)
		}
	}
	if other := w.respond(w.Context(), asked{stream: !q.stream, key: q.key}); other.status != http.StatusUnprocessableEntity {
		w.Errorf("the key with another body got %+v", other)
	}
	next := w.respond(w.Context(), asked{previous: o.ID})
	if next.object.types() != "message" || next.object.text() != text { // the model has seen all calls and results
		w.Errorf("the next response is %+v", next)
	}
	if n := len(w.tools.Calls()); n != calls {
		w.Errorf("%d calls after the end", n-calls)
	}
	return events
}

// between is what follows the first mark, up to the next end; empty if there is no mark.
func between(text, mark, end string) string {
	_, rest, _ := strings.Cut(text, mark)
	found, _, _ := strings.Cut(rest, end)
	return found
}
