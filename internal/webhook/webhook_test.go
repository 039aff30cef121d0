package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// at is the time of the example in the specification.
var at = time.Unix(1674087231, 0)

func message() Message {
	return Message{ID: "evt_1", Type: "run.waiting", At: at.Add(-time.Minute), Object: "run_1"}
}

func key(t *testing.T, text string) Key {
	t.Helper()
	k, err := ParseSecret(secret.NewValue(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const (
	current  = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	previous = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

// newClient returns a guarded client that may connect to the given addresses only.
func newClient(t *testing.T, allowed ...string) *http.Client {
	t.Helper()
	p := egress.DefaultPolicy()
	for _, a := range allowed {
		p.Allowlist = append(p.Allowlist, netip.MustParsePrefix(a))
	}
	out := egress.New(p, egress.Options{})
	t.Cleanup(out.CloseIdleConnections)
	return out.Guarded(egress.GuardedOptions{})
}

// newReceiver serves with h and returns the URL.
func newReceiver(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestABodyIsThin(t *testing.T) {
	b, err := message().Body()
	want := `{"object":"event","id":"evt_1","type":"run.waiting","created_at":1674087171,"data":{"id":"run_1"}}`
	if err != nil || string(b) != want {
		t.Errorf("body %s, %v; want %s", b, err, want)
	}
}

func TestThereIsOneSignaturePerKey(t *testing.T) {
	sign := func(keys ...Key) string {
		h := http.Header{}
		if err := Sign(h, "evt_1", at, []byte("{}"), keys...); err != nil {
			t.Fatal(err)
		}
		if h.Get("webhook-id") != "evt_1" || h.Get("webhook-timestamp") != "1674087231" {
			t.Errorf("headers %v", h)
		}
		return h.Get("webhook-signature")
	}
	a, b := key(t, current), key(t, previous)
	if got, want := sign(a, b), sign(a)+" "+sign(b); got != want {
		t.Errorf("signatures %q, want %q", got, want)
	}
}

// The example of the libraries of Standard Webhooks.
func TestASignatureIsThatOfTheSpecification(t *testing.T) {
	h := http.Header{}
	if err := Sign(h, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), key(t, current)); err != nil {
		t.Fatal(err)
	}
	if got, want := h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signature %s, want %s", got, want)
	}
}

func TestWhatCannotBeSignedIsAnError(t *testing.T) {
	k := key(t, current)
	for name, err := range map[string]error{
		"no key":               Sign(http.Header{}, "evt_1", at, nil),
		"zero key":             Sign(http.Header{}, "evt_1", at, nil, Key{}),
		"id without text":      Sign(http.Header{}, "", at, nil, k),
		"id with a full stop":  Sign(http.Header{}, "evt.1", at, nil, k),
		"id with a line break": Sign(http.Header{}, "evt\n1", at, nil, k),
	} {
		if err == nil {
			t.Errorf("%s: signed", name)
		}
	}
}

func TestASecretIsWhsecAndBase64OfItsSize(t *testing.T) {
	for range 100 {
		key(t, NewSecret().Reveal())
	}
	for _, bad := range []string{"", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_" + strings.Repeat("A", 88),
		"whsec_MfKQ9r8GKYqrTwjUPD8I\nLPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!"} {
		_, err := ParseSecret(secret.NewValue(bad))
		if !errors.Is(err, ErrSecret) {
			t.Errorf("%q: error %v, want ErrSecret", bad, err)
		}
	}
}

func TestAKeyIsNotPrinted(t *testing.T) {
	k := key(t, current)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb, k); got != "[redacted]" {
			t.Errorf("%s prints %q", verb, got)
		}
	}
}

func TestOnlyA2xxIsDelivered(t *testing.T) {
	for status, want := range map[int]bool{200: true, 202: true, 204: true, 304: false, 400: false, 410: false, 500: false, 503: false} {
		url := newReceiver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(status)
		})
		r := New(newClient(t, "127.0.0.1/32")).Send(t.Context(), Endpoint{url, []Key{key(t, current)}}, message(), at)
		if r.Delivered() != want || r.Status != status || r.Gone() != (status == 410) || r.RetryAfter != 17*time.Second {
			t.Errorf("status %d: %+v, delivered %t", status, r, r.Delivered())
		}
	}
}

// K01, P06. Redirects are not followed even to an address that the policy allows.
func TestARedirectIsNotFollowed(t *testing.T) {
	var reached atomic.Int32
	inner := newReceiver(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	outer := newReceiver(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		http.Redirect(w, r, inner, http.StatusTemporaryRedirect)
	})
	r := New(newClient(t, "127.0.0.1/32")).Send(t.Context(), Endpoint{outer, []Key{key(t, current)}}, message(), at)
	if r.Delivered() || r.Err == nil || reached.Load() != 0 {
		t.Errorf("result %+v, the target of the redirect got %d requests", r, reached.Load())
	}
}

// K01, P06.
func TestAForbiddenAddressGetsNothing(t *testing.T) {
	var reached atomic.Int32
	url := newReceiver(t, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	r := New(newClient(t)).Send(t.Context(), Endpoint{url, []Key{key(t, current)}}, message(), at)
	var blocked *egress.BlockedError
	if r.Delivered() || !errors.As(r.Err, &blocked) || reached.Load() != 0 {
		t.Errorf("result %+v, the receiver got %d requests", r, reached.Load())
	}
}

// endless is a response whose body never ends.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

func (e *endless) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(e)}, nil
}

func TestABodyWithoutEndIsNotReadToItsEnd(t *testing.T) {
	e := &endless{}
	r := New(&http.Client{Transport: e}).Send(t.Context(), Endpoint{"http://receiver.example", []Key{key(t, current)}}, message(), at)
	if !r.Delivered() || e.read.Load() > 2*maxResponse {
		t.Errorf("result %+v after %d bytes", r, e.read.Load())
	}
}

func TestDelaysDoubleUpToAnHour(t *testing.T) {
	for _, c := range []struct {
		failed int
		asked  time.Duration
		jitter float64
		want   time.Duration
	}{
		{1, 0, 0, 5 * time.Second},
		{2, 0, 0, 10 * time.Second},
		{1, 0, 0.5, 5*time.Second + 625*time.Millisecond},
		{1, time.Minute, 0, time.Minute},
		{3, time.Second, 0, 20 * time.Second},
		{11, 0, 0, time.Hour},
		{1 << 40, 0, 0, time.Hour},
		{1, 400 * time.Hour, 0, time.Hour},
	} {
		if got := Delay(c.failed, c.asked, c.jitter); got != c.want {
			t.Errorf("after %d failures, asked for %v: %v, want %v", c.failed, c.asked, got, c.want)
		}
	}
}
