package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/database/sqlitetest"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a store with webhooks, and what their receivers do. Time is that of the bubble.
type site struct {
	*testing.T
	*database.Store
	log strings.Builder

	mu       sync.Mutex
	answer   map[string]http.HandlerFunc // by host
	received []received
	runs     int
}

// received is a message that a receiver got.
type received struct {
	host, id, kind, object string
	at                     time.Duration // since the beginning
	status                 int
}

func newSite(t *testing.T) *site {
	return &site{T: t, Store: sqlitetest.Open(t, database.Options{Now: time.Now, LeaseNow: time.Now}), answer: map[string]http.HandlerFunc{}}
}

// RoundTrip hands a request to the handler of its host.
func (s *site) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	h := s.answer[r.URL.Host]
	s.mu.Unlock()
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h(w, r)
	}()
	select {
	case <-done:
	case <-r.Context().Done():
		<-done // which the handlers of these tests end with
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

// hook adds a webhook, whose receiver is at a host with its name.
func (s *site) hook(orgID, name string, answer http.HandlerFunc) org.Webhook {
	s.Helper()
	_ = s.CreateOrg(s.Context(), org.Record{ID: orgID}, org.Author{})
	w := org.Webhook{Org: orgID, Name: name, URL: "http://" + name + "." + orgID + "/in", Events: []string{"*"}, Sealed: []byte(current)}
	if err := s.CreateWebhook(s.Context(), w, org.Author{}); err != nil {
		s.Fatal(err)
	}
	s.receives(w, answer)
	return w
}

func (s *site) receives(w org.Webhook, answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	host := w.Name + "." + w.Org
	s.answer[host] = func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(body), `"type":"`)
		kind, rest, _ := strings.Cut(rest, `"`)
		_, rest, _ = strings.Cut(rest, `"data":{"id":"`)
		object, _, _ := strings.Cut(rest, `"`)
		if r.Context().Err() == nil {
			answer(rw, r)
		}
		code := 0
		if rec, ok := rw.(*httptest.ResponseRecorder); ok {
			code = rec.Code
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.received = append(s.received, received{host, r.Header.Get("webhook-id"), kind, object, time.Since(began), code})
	}
}

// got returns what the receiver of the webhook got.
func (s *site) got(w org.Webhook) []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.received), func(r received) bool { return r.host != w.Name+"."+w.Org })
}

// tell appends a batch with notices of the events, about one run.
func (s *site) tell(orgID, runID string, events ...string) {
	s.Helper()
	s.runs++
	lease := journal.Lease{Org: orgID, RunID: fmt.Sprint("run ", s.runs), Epoch: 1, Owner: "x"}
	b := journal.Batch{Sync: true, Facts: []loop.Fact{
		{Seq: 1, Epoch: 1, Version: loop.Version, Body: loop.Accepted{Org: orgID, RunID: lease.RunID}}, {Seq: 2, Epoch: 1, Version: loop.Version, Body: loop.Finished{Reason: event.Complete}},
	}}
	for _, e := range events {
		b.Notices = append(b.Notices, journal.Notice{Event: e, Object: runID, Subject: runID, At: time.Now().UnixMilli()})
	}
	if err := s.Append(s.Context(), lease, 0, b); err != nil {
		s.Fatal(err)
	}
}

func (s *site) start() *Deliverer {
	d := s.deliverer(time.Now)
	d.Start()
	return d
}

func (s *site) deliverer(now func() time.Time) *Deliverer {
	return New(Options{
		Store: s, Sender: webhook.New(&http.Client{Transport: s}), Open: open, Now: now, Jitter: func() float64 { return 0 },
		Log: slog.New(slog.NewTextHandler(&s.log, nil)),
	})
}

// poll makes the attempts that are due.
func (s *site) poll(d *Deliverer) {
	s.Helper()
	if err := d.pump.poll(s.Context(), s.Context()); err != nil {
		s.Fatal(err)
	}
	d.pump.done.Wait()
}

const current = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func open(_, name string, sealed []byte) (secret.Value, error) {
	if !strings.HasPrefix(name, "webhook:") {
		return secret.Value{}, errors.New("sealed for something else")
	}
	return secret.NewValue(string(sealed)), nil
}

func accepts(http.ResponseWriter, *http.Request) {}

func answers(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// hangs answers nothing until the attempt ends.
func hangs(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// outcomes returns the messages of a webhook, the first first.
func (s *site) outcomes(w org.Webhook) (out []string) {
	s.Helper()
	all, err := s.Deliveries(s.Context(), w.Org, w.Name, journal.DeliveryQuery{Limit: 1000})
	if err != nil {
		s.Fatal(err)
	}
	for _, d := range slices.Backward(all) {
		out = append(out, fmt.Sprintf("%s %s %d", d.Event, d.Outcome, d.Attempts))
	}
	return out
}

// L10. A receiver that is down for an hour gets everything once it is well, in order per object, and
// each message once.
func TestAReceiverThatIsDownForAnHourGetsAllInOrder(t *testing.T) {
	for name, down := range map[string]http.HandlerFunc{"answers 500": answers(500), "does not answer": hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				w := s.hook("a", "w", down)
				d := s.start()
				s.tell("a", "r1", org.RunWaiting, org.RunWaiting, org.ResponseCompleted)
				time.Sleep(30 * time.Minute)
				s.tell("a", "r2", org.ResponseFailed)
				time.Sleep(30 * time.Minute)
				failed := s.got(w)
				s.receives(w, accepts)
				time.Sleep(2 * time.Hour)
				d.Stop()
				var order []string
				ids := map[string]bool{}
				for _, r := range s.got(w)[len(failed):] {
					ids[r.id] = true
					if r.object == "r1" {
						order = append(order, r.kind)
					}
				}
				if want := []string{org.RunWaiting, org.RunWaiting, org.ResponseCompleted}; !slices.Equal(order, want) || len(ids) != 4 || len(s.got(w)) != len(failed)+4 {
					t.Errorf("the receiver got %v, %d ids: %+v", order, len(ids), s.got(w)[len(failed):])
				}
				for _, r := range failed {
					if r.object == "r1" && r.id != failed[0].id {
						t.Errorf("a message was sent before the one of its run that failed: %+v", failed)
					}
				}
				// The first attempt is made within a second, and the second one five seconds after it.
				if first, second := failed[0].at, failed[1].at; first > time.Second+webhook.Timeout || second-first < 5*time.Second || second-first > 7*time.Second+webhook.Timeout {
					t.Errorf("attempts at %v and %v", first, second)
				}
				if n := len(failed); n < 10 || n > 40 {
					t.Errorf("%d attempts in an hour", n)
				}
				for _, o := range s.outcomes(w) {
					if !strings.Contains(o, "delivered") {
						t.Errorf("outcomes %q", s.outcomes(w))
					}
				}
				if log := s.log.String(); strings.Count(log, "an attempt has failed") != 1 || strings.Count(log, "accepts messages again") != 1 {
					t.Errorf("the log does not say once each that the receiver failed and that it is well:\n%s", log)
				}
			})
		})
	}
}

// L10.
func TestAMessageIsGivenUpAfter72Hours(t *testing.T) {
	s := newSite(t)
	w := s.hook("a", "w", answers(503))
	begin := time.Now()
	now := begin
	d := s.deliverer(func() time.Time { return now })
	until := func(hours int) {
		for now.Sub(begin).Hours() < float64(hours) {
			now = now.Add(time.Minute)
			s.poll(d)
		}
	}
	s.tell("a", "r1", org.RunWaiting, org.ResponseCompleted)
	until(71)
	if got := s.outcomes(w); !strings.HasPrefix(got[0], "run.waiting waiting") {
		t.Errorf("after 71 hours: %q", got)
	}
	until(73)
	all, err := s.Deliveries(t.Context(), "a", "w", journal.DeliveryQuery{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	first := all[1]
	if first.Outcome != journal.MessageGivenUp || first.Error != "tried for 72 hours; the last attempt: the receiver has answered 503" || first.Status != 503 ||
		first.EndedAt-first.At > journal.GiveUpAfter.Milliseconds() || first.EndedAt-first.At < (70*time.Hour).Milliseconds() {
		t.Errorf("the first message is %+v", first)
	}
	if !strings.Contains(s.log.String(), "a message is given up") {
		t.Errorf("the log does not say that a message is given up:\n%s", s.log.String())
	}
}

// One receiver that never answers has its own attempts only: another webhook of its org, and other
// orgs, get their messages at once.
func TestASlowReceiverDoesNotHoldOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var busy, most atomic.Int32
		slow := s.hook("a", "a-slow", func(_ http.ResponseWriter, r *http.Request) {
			most.Store(max(most.Load(), busy.Add(1)))
			defer busy.Add(-1)
			<-r.Context().Done()
		})
		well, other := s.hook("a", "well", accepts), s.hook("b", "other", accepts)
		d := s.start()
		for i := range 50 {
			s.tell("a", fmt.Sprint("r", i), org.RunWaiting)
			s.tell("b", fmt.Sprint("r", i), org.RunWaiting)
		}
		time.Sleep(2 * time.Second)
		if a, b := len(s.got(well)), len(s.got(other)); a != 50 || b != 50 {
			t.Errorf("after two seconds, the others got %d and %d of 50 messages", a, b)
		}
		time.Sleep(10 * time.Minute)
		d.Stop()
		if most.Load() != perWebhook {
			t.Errorf("the slow receiver had %d attempts at a time, want %d", most.Load(), perWebhook)
		}
		if n := len(s.got(slow)); n < 50 {
			t.Errorf("the slow receiver got %d attempts", n)
		}
	})
}

// Many slow receivers together use no more connections than a process may, and each has its turn.
func TestAttemptsOfAProcessAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var busy, most atomic.Int32
		hooks := []org.Webhook{}
		for o := range 10 {
			for n := range 10 {
				hooks = append(hooks, s.hook(fmt.Sprint("org", o), fmt.Sprint("w", n), func(_ http.ResponseWriter, r *http.Request) {
					most.Store(max(most.Load(), busy.Add(1)))
					defer busy.Add(-1)
					<-r.Context().Done()
				}))
			}
			for r := range 5 {
				s.tell(fmt.Sprint("org", o), fmt.Sprint("r", r), org.RunWaiting)
			}
		}
		d := s.start()
		time.Sleep(30 * time.Second)
		d.Stop()
		if most.Load() != perProcess {
			t.Errorf("%d attempts at a time, want %d", most.Load(), perProcess)
		}
		for _, w := range hooks {
			if len(s.got(w)) == 0 {
				t.Errorf("webhook %s of %s had no turn", w.Name, w.Org)
			}
		}
		if d.pump.slots.all != 0 || len(d.pump.slots.busy) != 0 || len(d.pump.slots.ofOrg) != 0 {
			t.Errorf("after the end, %d attempts count as in progress", d.pump.slots.all)
		}
	})
}

// L10. A receiver that answers 410 Gone gets nothing more until its org enables the webhook.
func TestAReceiverThatIsGoneStopsItsWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.hook("a", "w", answers(410))
		d := s.start()
		s.tell("a", "r1", org.RunWaiting, org.ResponseCompleted)
		time.Sleep(time.Minute)
		s.tell("a", "r2", org.RunWaiting)
		time.Sleep(time.Hour)
		d.Stop()
		now, err := s.Webhook(t.Context(), "a", "w")
		if err != nil || now.Stopped != org.StoppedGone || len(s.got(w)) != 1 {
			t.Errorf("the webhook is %+v, %v; its receiver got %+v", now, err, s.got(w))
		}
		if got, want := s.outcomes(w), []string{"run.waiting given_up 1", "response.completed given_up 0"}; !slices.Equal(got, want) {
			t.Errorf("outcomes %q, want %q", got, want)
		}
	})
}

// What is stopped, or dies, before the answer is stored is sent again, with the same id.
func TestAMessageWhoseAttemptIsCutOffIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.hook("a", "w", hangs)
		d := s.start()
		s.tell("a", "r1", org.RunWaiting)
		time.Sleep(1500 * time.Millisecond)
		d.Stop()
		if got := s.outcomes(w); got[0] != "run.waiting waiting 0" {
			t.Errorf("after a stop: %q; it is no failure of the receiver", got)
		}
		s.receives(w, accepts)
		d = s.start()
		time.Sleep(claimTime + 2*time.Second)
		d.Stop()
		if got := s.got(w); len(got) != 2 || got[0].id != got[1].id {
			t.Errorf("the receiver got %+v", got)
		}
		if got := s.outcomes(w); got[0] != "run.waiting delivered 1" {
			t.Errorf("outcomes %q", got)
		}
	})
}

// During a rotation each message has a signature of both secrets; afterwards only the new one signs.
func TestBothSecretsSignDuringARotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var signatures []string
		w := s.hook("a", "w", func(_ http.ResponseWriter, r *http.Request) {
			signatures = append(signatures, r.Header.Get("webhook-signature"))
		})
		next := w
		next.Sealed, next.Previous = []byte("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"), org.PreviousSealed{Sealed: w.Sealed, Until: time.Now().Add(time.Hour)}
		if err := s.UpdateWebhook(t.Context(), w, next, org.Author{}); err != nil {
			t.Fatal(err)
		}
		d := s.start()
		s.tell("a", "r1", org.RunWaiting)
		time.Sleep(time.Hour)
		s.tell("a", "r2", org.RunWaiting)
		time.Sleep(time.Minute)
		d.Stop()
		if len(signatures) != 2 || strings.Count(signatures[0], "v1,") != 2 || strings.Count(signatures[1], "v1,") != 1 {
			t.Errorf("signatures %q", signatures)
		}
	})
}

// A secret that the master key does not open sends nothing, and says so.
func TestAMessageWithoutASecretIsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.hook("a", "w", accepts)
		next := w
		next.Sealed = []byte("sealed under a lost key")
		if err := s.UpdateWebhook(t.Context(), w, next, org.Author{}); err != nil {
			t.Fatal(err)
		}
		d := s.start()
		s.tell("a", "r1", org.RunWaiting)
		time.Sleep(time.Minute)
		d.Stop()
		all, err := s.Deliveries(t.Context(), "a", "w", journal.DeliveryQuery{Limit: 1})
		if err != nil || len(s.got(w)) != 0 || all[0].Outcome != journal.MessageWaiting || !strings.Contains(all[0].Error, "master key") {
			t.Errorf("messages %+v, %v; the receiver got %+v", all, err, s.got(w))
		}
	})
}

// A failure says what to do: a master key that is missing is restored, which keeps the secret, and a receiver that is down is started.
func TestAFailureSaysWhatToDo(t *testing.T) {
	s := newSite(t)
	off := func(string, string, []byte) (secret.Value, error) { return secret.Value{}, secret.ErrNoVault }
	d := New(Options{Store: s, Open: off})
	if _, err := d.keys(s.hook("a", "w", accepts), time.Now()); !errors.Is(err, errNoMasterKey) {
		t.Errorf("without a master key: %v", err)
	}
	refused := &url.Error{Op: "Post", URL: "http://x", Err: &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}}
	got := describe(webhook.Result{Err: refused})
	if got != "dial tcp: connection refused; start the receiver, or correct the URL of the webhook" {
		t.Errorf("a receiver that is down: %s", got)
	}
}

// A store that fails is logged once, and used again as soon as it works.
func TestAStoreThatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		w := s.hook("a", "w", accepts)
		failing := &failingStore{Store: s}
		failing.broken.Store(true)
		d := New(Options{Store: failing, Sender: webhook.New(&http.Client{Transport: s}), Open: open, Now: time.Now, Log: slog.New(slog.NewTextHandler(&s.log, nil))})
		d.Start()
		s.tell("a", "r1", org.RunWaiting)
		time.Sleep(time.Minute)
		failing.broken.Store(false)
		time.Sleep(2 * time.Second)
		d.Stop()
		if got := s.outcomes(w); got[0] != "run.waiting delivered 1" || strings.Count(s.log.String(), "the outbox cannot be used") != 1 {
			t.Errorf("outcomes %q, log:\n%s", got, s.log.String())
		}
	})
}

type failingStore struct {
	Store
	broken atomic.Bool
}

// DueWebhooks implements journal.Outbox.
func (f *failingStore) DueWebhooks(ctx context.Context, now time.Time) ([]journal.WebhookKey, error) {
	if f.broken.Load() {
		return nil, org.ErrUnavailable
	}
	return f.Store.DueWebhooks(ctx, now)
}

// K01, P06. What the outbound policy refuses, and a redirect to it, get nothing. The message is told as
// failed and tried again: the operator may allow the address.
func TestARefusedReceiverIsAFailureThatIsTriedAgain(t *testing.T) {
	var reached atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer inner.Close()
	outer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL+"/?secret=CANARY", http.StatusTemporaryRedirect)
	}))
	defer outer.Close()
	policy := egress.DefaultPolicy()
	for name, c := range map[string]struct {
		allow string
		want  string
	}{
		"a forbidden address": {"", "ssrf_blocked:loopback:127.0.0.1"},
		"a redirect":          {"127.0.0.1/32", "redirect to " + inner.URL + "/ not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policy
			if c.allow != "" {
				p.Allowlist = append(slices.Clone(p.Allowlist), netip.MustParsePrefix(c.allow))
			}
			way := egress.New(p, egress.Options{})
			defer way.CloseIdleConnections()
			s := newSite(t)
			d := New(Options{Store: s, Sender: webhook.New(way.Guarded(egress.GuardedOptions{})), Open: open, Log: slog.New(slog.DiscardHandler)})
			claimed := journal.ClaimedDelivery{
				Delivery: journal.NewDelivery("evt_1", org.Webhook{Org: "a", Name: "w"}, journal.Notice{Event: org.RunWaiting, At: time.Now().UnixMilli()}),
				To:       org.Webhook{Org: "a", Name: "w", URL: outer.URL, Sealed: []byte(current)},
			}
			next := After(claimed.Delivery, d.send(t.Context(), claimed), time.Now(), 0)
			if next.Outcome != journal.MessageWaiting || !strings.HasPrefix(next.Error, c.want) || strings.Contains(next.Error, "CANARY") || reached.Load() != 0 {
				t.Errorf("%+v, the inner server was reached %d times", next, reached.Load())
			}
		})
	}
}

// names is a resolver whose answers a test changes as it goes.
type names struct {
	mu   sync.Mutex
	addr map[string]string
}

func (n *names) set(name, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr[name] = addr
}

// LookupNetIP implements egress.Resolver.
func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr, ok := n.addr[strings.TrimSuffix(host, ".")]
	if !ok {
		return nil, fmt.Errorf("no such name: %s", host)
	}
	return []netip.Addr{netip.MustParseAddr(addr)}, nil
}

// L10, K01, P06. A receiver with a public name redirects to a public name whose address is 127.0.0.1;
// then its own name leads there. Nothing is sent to that address. Each is a failed attempt, and once
// the receiver is well it gets all messages of the run, in order and with their first ids.
func TestAReceiverThatLeadsInsideGetsItsMessagesOnceItIsWell(t *testing.T) {
	var inside atomic.Int32
	inner := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	defer inner.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(inner.URL, "http://"), ":")
	listener, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("this machine has one loopback address: %v", err)
	}
	redirects := true
	var got []string
	outer := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(body), `"type":"`)
		kind, _, _ := strings.Cut(rest, `"`)
		got = append(got, r.Header.Get("Webhook-Id")+" "+kind)
		if redirects {
			http.Redirect(w, r, "http://inner.example.com:"+port+"/", http.StatusTemporaryRedirect)
		}
	}))
	_ = outer.Listener.Close()
	outer.Listener = listener
	outer.Start()
	defer outer.Close()

	p := egress.DefaultPolicy()
	p.Allowlist = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}
	resolver := &names{addr: map[string]string{"hooks.example.com": "127.0.0.2", "inner.example.com": "127.0.0.1"}}
	way := egress.New(p, egress.Options{Resolver: resolver})
	defer way.CloseIdleConnections()
	s := newSite(t)
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	w := org.Webhook{Org: "a", Name: "w", URL: "http://hooks.example.com:" + port + "/in", Events: []string{"*"}, Sealed: []byte(current)}
	if err := s.CreateWebhook(t.Context(), w, org.Author{}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	d := New(Options{
		Store: s, Sender: webhook.New(way.Guarded(egress.GuardedOptions{})), Open: open, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now }, Jitter: func() float64 { return 0 },
	})
	attempt := func(after time.Duration) journal.Delivery {
		t.Helper()
		now = now.Add(after)
		s.poll(d)
		all, err := s.Deliveries(t.Context(), "a", "w", journal.DeliveryQuery{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return all[len(all)-1]
	}
	s.tell("a", "r1", org.RunWaiting, org.ResponseCompleted)
	for i, want := range []string{"ssrf_blocked:redirect:127.0.0.1", "ssrf_blocked:loopback:127.0.0.1"} {
		if first := attempt(webhook.Delay(i+1, 0, 0)); first.Outcome != journal.MessageWaiting || first.Error != want || first.Attempts != i+1 {
			t.Errorf("attempt %d: %+v, want the error %s", i+1, first, want)
		}
		way.CloseIdleConnections() // the name is looked up again
		resolver.set("hooks.example.com", "127.0.0.1")
	}
	redirects = false
	resolver.set("hooks.example.com", "127.0.0.2")
	attempt(webhook.Delay(2, 0, 0))
	attempt(0)
	if inside.Load() != 0 {
		t.Errorf("127.0.0.1 got %d requests", inside.Load())
	}
	if want := []string{"run.waiting delivered 3", "response.completed delivered 1"}; !slices.Equal(s.outcomes(w), want) {
		t.Errorf("outcomes %q, want %q", s.outcomes(w), want)
	}
	if len(got) != 3 || got[0] != got[1] || !strings.HasSuffix(got[2], " "+org.ResponseCompleted) {
		t.Errorf("the receiver got %q", got)
	}
}

// A webhook of the configuration file is signed with the secrets of the file, and not sent when the
// file does not have it any more.
func TestAWebhookOfTheFileIsSignedWithItsSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		var signatures []string
		w := s.hook("a", "w", func(_ http.ResponseWriter, r *http.Request) {
			signatures = append(signatures, r.Header.Get("webhook-signature"))
		})
		next := w
		next.Sealed = nil
		if err := s.UpdateWebhook(t.Context(), w, next, org.Author{}); err != nil {
			t.Fatal(err)
		}
		both := []secret.Value{secret.NewValue(current), secret.NewValue("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")}
		var declared atomic.Pointer[[]secret.Value]
		d := New(Options{
			Store: s, Sender: webhook.New(&http.Client{Transport: s}), Now: time.Now, Log: slog.New(slog.DiscardHandler),
			Declared: func(orgID, name string) []secret.Value {
				if orgID != "a" || name != "w" {
					t.Errorf("the secrets of %s of %s were asked for", name, orgID)
				}
				return *declared.Load()
			},
		})
		d.Start()
		for _, secrets := range [][]secret.Value{both, both[:1], nil} {
			declared.Store(&secrets)
			s.tell("a", "r", org.RunWaiting)
			time.Sleep(2 * time.Second)
		}
		d.Stop()
		all, err := s.Deliveries(t.Context(), "a", "w", journal.DeliveryQuery{Limit: 1})
		if err != nil || len(signatures) != 2 || strings.Count(signatures[0], "v1,") != 2 || strings.Count(signatures[1], "v1,") != 1 ||
			all[0].Error != errNotDeclared.Error() {
			t.Errorf("signatures %q; the last message is %+v, %v", signatures, all, err)
		}
	})
}

func TestTheErrorOfAnAttemptIsShortAndWithoutItsURL(t *testing.T) {
	d := journal.NewDelivery("evt_1", org.Webhook{}, journal.Notice{At: time.Now().UnixMilli()})
	c := &http.Client{Transport: failingTransport{strings.Repeat("ä\x1b[31m", 400)}}
	r := webhook.New(c).Send(t.Context(), webhook.Endpoint{URL: "http://x/?token=CANARY", Keys: []webhook.Key{key(t)}}, webhook.Message{ID: "evt_1"}, time.Now())
	got := After(d, r, time.Now(), 0).Error
	if len(got) > maxError || len(got) < 100 || strings.Contains(got, "CANARY") || strings.Contains(got, "\x1b") {
		t.Errorf("error %q", got)
	}
}

func key(t *testing.T) webhook.Key {
	k, err := webhook.ParseSecret(secret.NewValue(current))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

type failingTransport struct{ text string }

func (f failingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New(f.text)
}
