package runs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// follows is a Runner whose runs do what its function says.
type follows struct {
	got eventlog.Follow
	by  org.Author

	raise run.NewLimits
	do    func(ctx context.Context, sink eventlog.Sink) error
}

// Follow implements Runner.
func (r *follows) Follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink) error {
	r.got = f
	return r.do(ctx, sink)
}

// Cancel implements Runner.
func (r *follows) Cancel(_ context.Context, _, _ string, by org.Author) error { r.by = by; return nil }

// Raise implements Runner.
func (r *follows) Raise(_ context.Context, _, _ string, n run.NewLimits, by org.Author, _ *memlimit.Account) (budget.Limits, error) {
	r.by, r.raise = by, n
	return budget.Limits{Rounds: 20}, nil
}

// stored returns a store with the runs run_0 to run_N of the org o, of the keys a and b in
// turn, of which every third has failed and the others have ended.
func stored(t *testing.T, n int) *memory.Journal {
	t.Helper()
	store := new(memory.Journal)
	for i := range n {
		id := fmt.Sprint("run_", i)
		bodies := []loop.Body{
			loop.Accepted{RunID: id, Org: "o", Principal: []string{"a", "b"}[i%2], Surface: "chat", Policy: loop.Policy{Grade: loop.Durable}, Model: "m", Targets: []loop.Target{{Provider: "up"}}},
			loop.Finished{Reason: event.Complete},
		}
		if i%3 == 2 {
			bodies = slices.Insert(bodies, 1, loop.Body(loop.Blocked{Reason: "private", Address: "10.0.0.7", Server: "s", URL: "http://10.0.0.7/mcp", Setting: "k"}))
			bodies[2] = loop.Finished{Reason: event.Blocked}
		}
		var facts []loop.Fact
		for seq, body := range bodies {
			facts = append(facts, loop.Fact{Seq: int64(seq) + 1, Epoch: 1, At: int64(1000 * i), Version: loop.Version, Body: body})
		}
		if err := store.Append(t.Context(), journal.Lease{Org: "o", RunID: id, Epoch: 1, Owner: "x"}, 0, journal.Batch{Facts: facts, Sync: true}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// noHooks is the store of runs whose hooks are told nothing.
type noHooks struct{}

// HookMessages implements journal.HookMessagesOfRun.
func (noHooks) HookMessages(context.Context, string, string) ([]journal.HookMessage, error) {
	return nil, nil
}

// events returns the endpoint with a format of errors.
func events(h *Handler) surface.Endpoint {
	return h.Events(&surface.Errors{Object: func(e surface.Error) any { return map[string]string{"error": e.Code} }})
}

// ask calls an endpoint as the key of a role, and answers its error as the server does.
func ask(t *testing.T, o Options, serve func(*Handler) surface.Endpoint, role org.Role, key, target string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	if o.Heartbeats == nil {
		o.Heartbeats = sse.NewHeartbeats(0)
	}
	o.Log = slog.New(slog.DiscardHandler)
	o.Hooks = noHooks{}
	w, l := httptest.NewRecorder(), memlimit.New(memlimit.Options{Run: 1 << 20})
	caller := caller.Caller{Org: &org.Org{ID: "o"}, Principal: org.Principal{ID: key, Role: role}, RequestID: "req_1", Account: l.Open("o")}
	r := httptest.NewRequest("GET", target, nil)
	r.SetPathValue("id", "run_2")
	for pair := range slices.Chunk(fields, 2) {
		r.Header.Add(pair[0], pair[1])
	}
	if err := serve(New(o))(w, r, caller); err != nil {
		f := fault.From(err)
		w.WriteHeader(map[fault.Code]int{fault.Invalid: 400, fault.NotFound: 404, fault.Limited: 429, fault.Internal: 500}[f.Code])
		fmt.Fprintf(w, "%s %s: %s", f.Reason, f.Param, f.Message)
	}
	caller.Account.Close()
	if l.Held() != 0 {
		t.Errorf("%d bytes are still charged", l.Held())
	}
	return w
}

func ids(body string) (out []string) {
	for part := range strings.SplitSeq(body, `"id":"`) {
		if id, _, ok := strings.Cut(part, `"`); ok && strings.HasPrefix(id, "run_") {
			out = append(out, strings.TrimPrefix(id, "run_"))
		}
	}
	return out
}

// J21
func TestTheListHasTheRunsThatItsParametersSelect(t *testing.T) {
	store := stored(t, 30)
	list := func(h *Handler) surface.Endpoint { return h.List }
	for query, want := range map[string]string{
		"limit=3":                                    `29 28 27 "has_more":true,"first_id":"run_29","last_id":"run_27"}`,
		"limit=2&before=run_2":                       `1 0 "has_more":false,"first_id":"run_1","last_id":"run_0"}`,
		"before=run_0":                               ` "has_more":false,"first_id":null,"last_id":null}`,
		"state=blocked&limit=1":                      `29 "has_more":true,`,
		"state=blocked,complete&limit=2":             `29 28 "has_more":true,`,
		"state=running":                              ` "has_more":false,`,
		"key_id=b&limit=2":                           `29 27 "has_more":true,`,
		"key_id=nobody":                              ` "has_more":false,`,
		"since=1970-01-01T00:00:28Z":                 `29 28 "has_more":false,`,
		"since=1970-01-01T00:00:28.5Z&state=blocked": `29 "has_more":false,`,
	} {
		w := ask(t, Options{Archive: store}, list, org.Admin, "admin", "/v1/runs?"+query)
		found, more, _ := strings.Cut(want, ` "`)
		more = `"` + more
		body := w.Body.String()
		if got := strings.Join(ids(body), " "); w.Code != 200 || got != found || !strings.Contains(body, more) || !strings.HasPrefix(body, `{"object":"list","data":[`) {
			t.Errorf("%s: %d, %s, want %s: %s", query, w.Code, got, want, body)
		}
	}
	all := ask(t, Options{Archive: store}, list, org.Owner, "owner", "/v1/runs").Body.String()
	if n := len(ids(all)); n != 20 {
		t.Errorf("the default is %d runs", n)
	}
}

func TestAMemberSeesTheRunsOfItsKey(t *testing.T) { // K07
	store := stored(t, 6)
	list := func(h *Handler) surface.Endpoint { return h.List }
	get := func(h *Handler) surface.Endpoint { return h.Get }
	cancel := func(h *Handler) surface.Endpoint { return h.Cancel }
	for query, want := range map[string]string{"": "5 3 1", "?key_id=b": "5 3 1", "?key_id=a": "", "?before=run_5": "3 1", "?limit=1": "5"} {
		w := ask(t, Options{Archive: store}, list, org.Member, "b", "/v1/runs"+query)
		if got := strings.Join(ids(w.Body.String()), " "); w.Code != 200 || got != want {
			t.Errorf("%s: %d, %s, want %s", query, w.Code, got, want)
		}
	}
	// A run of another key cannot be told from one that is not there.
	there, not := ask(t, Options{Archive: store}, list, org.Member, "b", "/v1/runs?before=run_2"), ask(t, Options{Archive: store}, list, org.Member, "b", "/v1/runs?before=run_x")
	if there.Code != 404 || there.Body.String() != not.Body.String() || !strings.HasPrefix(there.Body.String(), "not_found before: ") {
		t.Errorf("%s\n%s", there.Body, not.Body)
	}
	for _, serve := range []func(*Handler) surface.Endpoint{get, events, cancel} {
		runner := &follows{do: func(context.Context, eventlog.Sink) error { return nil }}
		if w := ask(t, Options{Archive: store, Runner: runner}, serve, org.Member, "b", "/v1/runs/run_2"); w.Code != 404 || runner.got.Org != "" || !runner.by.IsZero() {
			t.Errorf("another key's run: %d %s", w.Code, w.Body)
		}
		if w := ask(t, Options{Archive: store, Runner: runner}, serve, org.Member, "a", "/v1/runs/run_2"); w.Code >= 300 {
			t.Errorf("its own run: %d %s", w.Code, w.Body)
		}
	}
}

func TestParametersThatCannotBeReadAreRefused(t *testing.T) {
	store := stored(t, 3)
	list := func(h *Handler) surface.Endpoint { return h.List }
	for query, want := range map[string]string{
		"state=failed": `invalid_value state: unknown state "failed"; the states are queued, running, waiting`, "state=blocked,": "invalid_value state: ",
		"since=2h": "invalid_value since: ", "limit=0": "invalid_value limit: ", "limit=101": "invalid_value limit: ", "limit=x": "invalid_value limit: ",
		"limit=1&limit=2": "invalid_value limit: ", "until=x": "unknown_parameter until: ", "after=run_1": "unknown_parameter after: ",
	} {
		if w := ask(t, Options{Archive: store}, list, org.Owner, "owner", "/v1/runs?"+query); w.Code != 400 || !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
	get := func(h *Handler) surface.Endpoint { return h.Get }
	if w := ask(t, Options{Archive: store}, get, org.Owner, "owner", "/v1/runs/run_2?full=1"); w.Code != 400 || !strings.HasPrefix(w.Body.String(), "unknown_parameter full: ") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// failure is a failed run with all that not everybody may see.
func failure() *event.Failure {
	return &event.Failure{
		Code: "c", Message: "m", Address: "10.0.0.7", Server: "s", URL: "http://10.0.0.7/mcp", Setting: "k",
		Upstream: &model.Error{Class: model.Target, Status: 418, Header: map[string][]string{"X-Request-Id": {"req-header"}}, Body: []byte("at 10.0.0.7"), Dialect: "d", Message: "um", Code: "uc"},
	}
}

// Addresses, and what a provider has answered, are for owners and admins. // K09
func TestOnlyOwnersAndAdminsGetAddresses(t *testing.T) {
	hidden := []string{"10.0.0.7", "mcp", "req-header", "YXQgMTAuMC4wLjc"}
	d := &eventlog.Detail{
		Summary: journal.Summary{Reason: event.Blocked}, Failure: failure(),
		ModelFailure: &eventlog.ModelFailure{Message: "m", Cause: "dial 10.0.0.7", Body: []byte("at 10.0.0.7")},
	}
	for role, sees := range map[org.Role]bool{org.Owner: true, org.Admin: true, org.Member: false} {
		w := httptest.NewRecorder()
		if err := surface.WriteJSON(w, 200, NewDetail(d, role.MaySeeAddresses())); err != nil {
			t.Fatal(err)
		}
		runner := &follows{do: func(_ context.Context, sink eventlog.Sink) error {
			return sink.Emit(event.Position{Seq: 1}, event.Finished{Reason: event.Blocked, Failure: failure()})
		}}
		for _, body := range []string{w.Body.String(), ask(t, Options{Archive: stored(t, 3), Runner: runner}, events, role, "a", "/v1/runs/run_2/events").Body.String()} {
			for _, text := range hidden {
				if strings.Contains(body, text) != sees {
					t.Errorf("%s: %q in %s: %v", role, text, body, !sees)
				}
			}
			for _, text := range []string{`"code":"c"`, `"server":"s"`, `"setting":"k"`, `"status":418`, `"message":"um"`} {
				if !strings.Contains(body, text) {
					t.Errorf("%s: %s lacks %s", role, body, text)
				}
			}
		}
	}
	if failure().Upstream.Body == nil || d.Failure.Address == "" {
		t.Error("the failure itself was changed")
	}
}

func followed(t *testing.T, do func(ctx context.Context, sink eventlog.Sink) error, target string, fields ...string) (*httptest.ResponseRecorder, eventlog.Follow) {
	t.Helper()
	runner := &follows{do: do}
	return ask(t, Options{Archive: stored(t, 3), Runner: runner}, events, org.Owner, "owner", target, fields...), runner.got
}

// L05
func TestEventsHaveTheirPositionAndType(t *testing.T) {
	w, got := followed(t, func(_ context.Context, sink eventlog.Sink) error {
		return errors.Join(
			sink.Emit(event.Position{Seq: 1}, event.Started{RunID: "run_2", Model: "m", At: time.Unix(0, 0).UTC()}),
			sink.Emit(event.Position{Seq: 3, Delta: 1}, event.TextDelta{Text: "a\nb\r\n<i>"}),
			sink.Emit(event.Position{Seq: 9}, event.Finished{Reason: event.Complete, Rounds: 1}),
		)
	}, "/v1/runs/run_2/events")
	want := "id: 1.0\nevent: started\ndata: {\"v\":1,\"type\":\"started\",\"run_id\":\"run_2\",\"model\":\"m\",\"at\":\"1970-01-01T00:00:00Z\"}\n\n" +
		"id: 3.1\nevent: text_delta\ndata: {\"v\":1,\"type\":\"text_delta\",\"round\":0,\"item\":0,\"part\":0,\"text\":\"a\\nb\\r\\n<i>\"}\n\n" +
		"id: 9.0\nevent: finished\ndata: {\"v\":1,\"type\":\"finished\",\"reason\":\"complete\",\"usage\":{\"input\":0,\"output\":0,\"total\":0},\"rounds\":1,\"tool_calls\":0}\n\n"
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.String() != want {
		t.Errorf("%d %v\n%s\nwant\n%s", w.Code, w.Header(), w.Body, want)
	}
	if got.Org != "o" || got.RunID != "run_2" || got.After != (event.Position{}) || got.ToWaiting || got.Final || got.Account == nil {
		t.Errorf("followed %+v", got)
	}
}

// A client goes on after the last event that it has. // P05
func TestAStreamBeginsAfterTheEventThatTheClientNames(t *testing.T) {
	none := func(context.Context, eventlog.Sink) error { return nil }
	for _, c := range []struct {
		query  string
		fields []string
		want   event.Position
	}{
		{"?after=12.3", nil, event.Position{Seq: 12, Delta: 3}},
		{"", []string{"Last-Event-ID", "4.0"}, event.Position{Seq: 4}},
		{"?after=12.3", []string{"Last-Event-ID", "40.1"}, event.Position{Seq: 40, Delta: 1}}, // as browsers connect again
	} {
		w, got := followed(t, none, "/v1/runs/run_2/events"+c.query, c.fields...)
		if got.After != c.want || w.Code != http.StatusNoContent {
			t.Errorf("%+v: %d, after %v", c, w.Code, got.After)
		}
	}
	for _, c := range [][]string{
		{"?after=", "after"}, {"?after=12", "after"}, {"?after=-1.0", "after"}, {"?after=" + strings.Repeat("9", 5000) + ".0", "after"}, {"?after=1.0&after=2.0", "after"},
		{"", "Last-Event-ID", "Last-Event-ID", "x"}, {"?after=1.0", "Last-Event-ID", "Last-Event-ID", "01.0"},
		{"", "Last-Event-ID", "Last-Event-ID", "1.0", "Last-Event-ID", "1.0"},
	} {
		w, got := followed(t, none, "/v1/runs/run_2/events"+c[0], c[2:]...)
		if w.Code != 400 || !strings.HasPrefix(w.Body.String(), "invalid_value "+c[1]+": ") || w.Body.Len() > 300 || got.Org != "" {
			t.Errorf("%.50q: %d %s", c, w.Code, w.Body)
		}
	}
}

// A failure has its status before the stream has begun, and is its last event afterwards.
func TestAFailedStream(t *testing.T) {
	refused := fault.New(fault.Limited, "too_many_followers", "no place")
	w, _ := followed(t, func(context.Context, eventlog.Sink) error { return refused }, "/v1/runs/run_2/events")
	if w.Code != 429 || !strings.HasPrefix(w.Body.String(), "too_many_followers") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w, _ = followed(t, func(_ context.Context, sink eventlog.Sink) error {
		return errors.Join(sink.Emit(event.Position{Seq: 2}, event.RoundStarted{}), errors.New("secret"))
	}, "/v1/runs/run_2/events")
	if w.Code != 200 || !strings.HasSuffix(w.Body.String(), "\n\nevent: error\ndata: {\"error\":\"internal_error\"}\n\n") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	big := strings.Repeat("x", 600<<10) // does not fit into the account
	w, _ = followed(t, func(_ context.Context, sink eventlog.Sink) error {
		return errors.Join(sink.Emit(event.Position{Seq: 2}, event.RoundStarted{}), sink.Emit(event.Position{Seq: 3}, event.ToolDone{Text: big}))
	}, "/v1/runs/run_2/events")
	if !strings.HasSuffix(w.Body.String(), "event: error\ndata: {\"error\":\"run_memory_exceeded\"}\n\n") || w.Body.Len() > 1000 {
		t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
	}
}

func TestASilentStreamHasHeartbeats(t *testing.T) { // L05
	synctest.Test(t, func(t *testing.T) {
		beats := sse.NewHeartbeats(0)
		beats.Start()
		defer beats.Stop()
		runner := &follows{do: func(context.Context, eventlog.Sink) error { time.Sleep(35 * time.Second); return nil }}
		w := ask(t, Options{Archive: stored(t, 3), Runner: runner, Heartbeats: beats}, events, org.Owner, "owner", "/v1/runs/run_2/events")
		if w.Code != 200 || w.Body.String() != ": keep-alive\n\n: keep-alive\n\n: keep-alive\n\n" {
			t.Errorf("%d %q", w.Code, w.Body)
		}
	})
}

func TestACancelNamesItsAuthor(t *testing.T) { // J22
	runner := &follows{}
	cancel := func(h *Handler) surface.Endpoint { return h.Cancel }
	now := time.UnixMilli(77)
	o := Options{Archive: stored(t, 3), Runner: runner, Now: func() time.Time { return now }}
	if w := ask(t, o, cancel, org.Member, "a", "/v1/runs/run_2/cancel?reason=x"); w.Code != 400 || !strings.HasPrefix(w.Body.String(), "unknown_parameter reason: ") || runner.by.At != 0 {
		t.Errorf("an unknown parameter: %d %s by %+v", w.Code, w.Body, runner.by)
	}
	w := ask(t, o, cancel, org.Member, "a", "/v1/runs/run_2/cancel")
	if w.Code != 202 || w.Body.String() != `{"id":"run_2","status":"cancelling"}`+"\n" || runner.by != (org.Author{Principal: "a", RequestID: "req_1", At: 77}) {
		t.Errorf("%d %s by %+v", w.Code, w.Body, runner.by)
	}
}

// HEAD of the events says that there are some, and does not wait for them.
func TestHeadOfTheEventsFollowsNothing(t *testing.T) {
	runner := &follows{}
	w := ask(t, Options{Archive: stored(t, 3), Runner: runner}, func(h *Handler) surface.Endpoint {
		serve := events(h)
		return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
			r.Method = http.MethodHead
			return serve(w, r, caller)
		}
	}, org.Owner, "a", "/v1/runs/run_2/events")
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() != 0 || runner.got.Org != "" {
		t.Errorf("%d %v %q, followed %+v", w.Code, w.Header(), w.Body, runner.got)
	}
}
