//go:build unix

package crash_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// receiver is a receiver of webhooks.
type receiver struct {
	*httptest.Server

	mu     sync.Mutex
	status int // of its answers
	got    []delivered
}

// delivered is a message that a receiver got.
type delivered struct {
	id     string
	header http.Header
	body   string
	status int // of the answer
}

func newReceiver(t *testing.T, status int) *receiver {
	t.Helper()
	r := &receiver{status: status}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, delivered{q.Header.Get("Webhook-Id"), q.Header.Clone(), string(body), r.status})
		w.WriteHeader(r.status)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answers(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

// all returns what was received so far.
func (r *receiver) all() []delivered {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivered{}, r.got...)
}

// masterKey makes the vault of a world's gateways.
const masterKey = "TURNPIKE_MASTER_KEY=ZZQ6dE6//ojMW55tTV/Ey5pYXLFUdw5RovKMWK0zQ/4="

// api sends a management request and decodes the answer.
func (w *world) api(method, path string, in, out any) {
	w.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		w.Fatal(err)
	}
	req, err := http.NewRequestWithContext(w.Context(), method, w.base()+path, bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	resp, err := w.http.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil || resp.StatusCode/100 != 2 {
		w.Fatalf("%s %s: %d %s, %v", method, path, resp.StatusCode, text, err)
	}
}

// addWebhook adds a webhook, and returns its secret.
func (w *world) addWebhook(r *receiver) secret.Value {
	w.Helper()
	var added struct{ Secret string }
	w.api(http.MethodPost, "/api/webhooks", map[string]any{"name": "ops", "url": r.URL, "events": []string{"*"}}, &added)
	return secret.NewValue(added.Secret)
}

// verify fails the test unless the message has a signature of the secret.
func verify(t *testing.T, d delivered, v secret.Value) {
	t.Helper()
	key, err := webhook.ParseSecret(v)
	if err != nil {
		t.Fatal(err)
	}
	seconds, err := strconv.ParseInt(d.header.Get("Webhook-Timestamp"), 10, 64)
	at := time.Unix(seconds, 0)
	if err != nil || time.Since(at) > 2*patience {
		t.Fatalf("the message was signed at %v, %v", at, err)
	}
	want := http.Header{}
	if err := webhook.Sign(want, d.id, at, []byte(d.body), key); err != nil {
		t.Fatal(err)
	}
	if got := d.header.Get("Webhook-Signature"); got != want.Get("Webhook-Signature") {
		t.Errorf("the signature is %q, want %q", got, want.Get("Webhook-Signature"))
	}
}

// webhookCases kill the gateway before a message is delivered, and between its delivery and what is stored of
// it. The numbers are how often the receiver gets the message.
func webhookCases() map[crash.Point]int {
	return map[crash.Point]int{crash.AfterFinish: 1, crash.AfterWebhookSend: 2}
}

// The gateway dies after the end of a run is stored and before anything is sent: the next process
// delivers. It dies after the receiver has accepted and before that is stored: the next process sends
// the same message again, with the same id. // L10
func TestWebhooksSurviveCrashes(t *testing.T) {
	t.Parallel()
	for point, atLeast := range webhookCases() {
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			w, _ := newErrand(t, "", "")
			w.env = []string{masterKey}
			r := newReceiver(t, http.StatusOK)
			first := w.start(nth(point, 1))
			signs := w.addWebhook(r)
			got := w.insistOnResponse(asked{key: "hook-1"})
			first.wantKilled(t, "which passes "+string(point))
			w.start("")
			all := await(t, "a response", got)
			id := all[len(all)-1].object.ID
			eventually(t, "the message is delivered", func() bool {
				var page struct{ Data []struct{ Outcome string } }
				w.api(http.MethodGet, "/api/webhooks/ops/deliveries", nil, &page)
				return len(page.Data) == 1 && page.Data[0].Outcome == "delivered"
			})
			messages := r.all()
			if len(messages) != atLeast {
				t.Errorf("the receiver got %d messages, want %d", len(messages), atLeast)
			}
			for _, m := range messages {
				verify(t, m, signs)
				if m.id != messages[0].id || m.body != messages[0].body || !strings.Contains(m.body, `"type":"response.completed"`) || !strings.Contains(m.body, `"data":{"id":"`+id+`"}`) {
					t.Errorf("the receiver got %s %s for the response %s", m.id, m.body, id)
				}
			}
		})
	}
}

// A receiver is down for an hour of the wall clock, while the gateway is restarted. Then it gets what
// has happened, in order. // L10
func TestAReceiverThatIsDownForAnHour(t *testing.T) {
	t.Parallel()
	w, _ := newErrand(t, "", "")
	w.env = []string{masterKey}
	r := newReceiver(t, http.StatusInternalServerError)
	first := w.start("")
	w.addWebhook(r)
	begun := await(t, "a response that waits", w.insistOnResponse(asked{key: "hook-1", gated: true}))
	await(t, "a response", w.insistOnEnd(asked{gated: true, previous: begun[len(begun)-1].object.ID, answers: begun[len(begun)-1].object.approvals(), key: ""}))
	eventually(t, "an attempt fails", func() bool { return len(r.all()) > 0 })
	first.kill()
	first.wantKilled(t, "while its receiver is down")
	w.setClock(30 * time.Minute)
	w.start("")
	tried := len(r.all())
	eventually(t, "another attempt fails", func() bool { return len(r.all()) > tried })
	r.answers(http.StatusOK)
	w.setClock(2 * time.Hour)
	var last string
	eventually(t, "all messages are delivered", func() bool {
		var page struct {
			Data []struct{ Event, Outcome string }
		}
		w.api(http.MethodGet, "/api/webhooks/ops/deliveries", nil, &page)
		last = page.Data[0].Event
		for _, d := range page.Data {
			if d.Outcome != "delivered" {
				return false
			}
		}
		return len(page.Data) >= 2
	})
	var order []string
	for _, m := range r.all() {
		if m.status == http.StatusOK {
			_, rest, _ := strings.Cut(m.body, `"type":"`)
			kind, _, _ := strings.Cut(rest, `"`)
			order = append(order, kind)
		}
	}
	if want := strings.Repeat("run.waiting ", len(order)-1) + "response.completed"; strings.Join(order, " ") != want || last != "response.completed" {
		t.Errorf("the receiver got %q, want %q; the latest message is %s", order, want, last)
	}
}

// Each background response has one message about its end, also if the gateway dies before the end, after it and
// when a cancel is stored. // L10 P20
func TestABackgroundResponseHasOneMessage(t *testing.T) {
	t.Parallel()
	points := map[crash.Point]string{
		crash.AfterAccept: "response.completed", crash.AfterTurn: "response.completed", crash.BeforeFinish: "response.completed",
		crash.AfterFinish: "response.completed", crash.AfterCancel: "response.cancelled",
	}
	for _, point := range sampled(t, slices.Sorted(maps.Keys(points)), func(point crash.Point) string { return points[point] }) {
		event := points[point]
		t.Run(string(point), func(t *testing.T) {
			t.Parallel()
			held := ""
			if point == crash.AfterCancel {
				held = "tool"
			}
			w, release := newErrand(t, held, "")
			defer release()
			w.env = []string{masterKey}
			r := newReceiver(t, http.StatusOK)
			first := w.start(nth(point, 1))
			signs := w.addWebhook(r)
			go w.respond(t.Context(), asked{background: true})
			if point == crash.AfterCancel {
				w.awaitHeld()
				go func() { _, _ = w.cancelResponse(t.Context(), strings.Replace(w.onlyRun(), "run_", "resp_", 1)) }()
			}
			first.wantKilled(t, "which passes "+string(point))
			w.serve()
			release()
			id := strings.Replace(w.onlyRun(), "run_", "resp_", 1)
			w.wantOneEnd(id, strings.TrimPrefix(event, "response."))
			eventually(t, "the message is delivered", func() bool {
				var page struct{ Data []struct{ Outcome string } }
				w.api(http.MethodGet, "/api/webhooks/ops/deliveries", nil, &page)
				return len(page.Data) == 1 && page.Data[0].Outcome == "delivered"
			})
			messages := r.all()
			if len(messages) != 1 {
				t.Fatalf("the receiver got %d messages, want one", len(messages))
			}
			verify(t, messages[0], signs)
			if body := messages[0].body; !strings.Contains(body, `"type":"`+event+`"`) || !strings.Contains(body, `"data":{"id":"`+id+`"}`) {
				t.Errorf("the receiver got %s for the response %s, want %s", body, id, event)
			}
		})
	}
}
