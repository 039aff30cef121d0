package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/relay"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		after, ms string
		want      time.Duration
	}{
		{"", "", 0}, {"2", "", 2 * time.Second}, {"0.5", "", time.Second / 2}, {"2", "1500", 1500 * time.Millisecond}, {"1", "0", time.Second},
		{"Fri, 02 Jan 2026 03:04:35 GMT", "", 30 * time.Second}, {"Fri, 02 Jan 2026 03:04:00 GMT", "", 0},
		{"-1", "", 0}, {"soon", "x", 0}, {"1e300", "", 24 * time.Hour}, {"NaN", "", 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", tt.after)
		h.Set("Retry-After-Ms", tt.ms)
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%q %q: %v, want %v", tt.after, tt.ms, got, tt.want)
		}
	}
}

func TestARetryAfterIsADayAtMost(t *testing.T) {
	for _, name := range []string{"Retry-After", "Retry-After-Ms"} {
		for said, want := range map[string]time.Duration{"1e300": maxRetryAfter, "99999999999999999999": maxRetryAfter, "-1": 0, "NaN": 0, "soon": 0} {
			if got := retryAfter(http.Header{name: {said}}, time.Now()); got != want {
				t.Errorf("%s: %s: %v, want %v", name, said, got, want)
			}
		}
	}
	if got := retryAfter(http.Header{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}}, time.Now()); got != maxRetryAfter {
		t.Errorf("a date: %v", got)
	}
}

// An error inside an answer can be as large as an answer. It is logged, stored and sent
// to the client.
func TestWhatIsKeptOfAnErrorIsLimited(t *testing.T) {
	d := Describe([]byte(`{"error":{"message":"` + strings.Repeat("m", 1<<20) + `","code":"` + strings.Repeat("c", 1<<20) + `"},"choices":[` +
		strings.TrimSuffix(strings.Repeat(`{"error":{"code":"rate_limit"}},`, 500_000), ",") + `]}`))
	if len(d.message) > maxMessage || len(d.name()) > maxName || len(d.words) > 3*maxWords {
		t.Errorf("message of %d bytes, name of %d, words of %d", len(d.message), len(d.name()), len(d.words))
	}
	d = Describe([]byte(`{"detail":[` + strings.TrimSuffix(strings.Repeat(`{"msg":"field required"},`, 500_000), ",") + `]}`))
	if len(d.message) > maxMessage || !strings.HasPrefix(d.message, "field required; field required") {
		t.Errorf("message of %d bytes: %.40s", len(d.message), d.message)
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(`{"error":{"message":"m","code":1,"innererror":{"code":"x"}},"detail":[{"msg":"a"}]}`)
	f.Add(`[{"error":"x"}]`)
	f.Fuzz(func(t *testing.T, body string) {
		d := Describe([]byte(body))
		if Classify(d.status, d) == "" || Classify(400, d) == "" {
			t.Error("no class")
		}
	})
}

// A provider that sends one byte at a time is not silent.
func TestEveryByteResetsTheWatch(t *testing.T) {
	src := &source{src: strings.NewReader("abc"), left: 2, watch: time.NewTimer(time.Hour), silence: time.Hour}
	defer src.watch.Stop()
	got, err := io.ReadAll(src)
	if string(got) != "ab" || !errors.Is(err, errTooMuch) {
		t.Errorf("%q %v", got, err)
	}
}

// transport answers in the process.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// meter is a memory that has room for most bytes.
type meter struct{ most, held int }

func (m *meter) Acquire(n int) error {
	if m.held+n > m.most {
		return errors.New("no room")
	}
	m.held += n
	return nil
}

func (m *meter) Release(n int) { m.held -= n }

// A body is charged from when it is sent until the answer begins; one for which there
// is no room is not sent.
func TestTheBodyOfARequestIsCharged(t *testing.T) {
	body := make([]byte, 100_000)
	for _, tt := range []struct {
		most, sent int
		answers    bool
	}{{200_000, 1, true}, {200_000, 1, false}, {50_000, 0, true}} {
		m := meter{most: tt.most}
		sent := 0
		c := New("d", Endpoint{BaseURL: "http://provider.test", Transport: transport(func(r *http.Request) (*http.Response, error) {
			if sent++; m.held < len(body) {
				t.Errorf("%d bytes are charged while a body of %d is sent", m.held, len(body))
			}
			if !tt.answers {
				return nil, io.ErrUnexpectedEOF
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("{}"))}, nil
		})}, nil)
		err := c.Stream(t.Context(), c.URL("/x"), StreamHeader(), body, &m, func(io.Reader) error {
			if m.held != 0 {
				t.Errorf("%d bytes are charged when the answer has begun", m.held)
			}
			return nil
		})
		if sent != tt.sent || m.held != 0 || (err == nil) != (tt.answers && tt.sent > 0) {
			t.Errorf("%+v: sent %d times, %d bytes still charged, %v", tt, sent, m.held, err)
		}
	}
}

// A server may answer before it has read the request. The transport sends the rest nevertheless, and by then the
// buffer of the body is used for another request.
func TestABodyIsReleasedWhenNothingReadsItAnyMore(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 20_000)
	got := make(chan []byte, 1)
	released := make(chan struct{})
	c := New("d", Endpoint{BaseURL: "http://provider.test", Transport: transport(func(r *http.Request) (*http.Response, error) {
		begin := make([]byte, 5_000)
		_, err := io.ReadFull(r.Body, begin)
		go func() {
			<-released
			rest, _ := io.ReadAll(r.Body)
			got <- slices.Concat(begin, rest)
		}()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, err
	})}, nil)
	body := bytes.Clone(want)
	_, err := c.Relay(t.Context(), c.URL("/x"), &relay.Request{Body: body, Release: func() {
		for i := range body {
			body[i] = 0xDB
		}
		close(released)
	}}, nil)
	if sent := <-got; err != nil || !bytes.Equal(sent, want) {
		t.Errorf("%v, %d of %d bytes were sent, the released ones: %d", err, len(sent), len(want), bytes.Count(sent, []byte{0xDB}))
	}
	small := &relay.Request{Body: want[:smallBody], Release: func() { t.Error("a small body is released, and the transport keeps it") }}
	c.e.Transport = transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}, nil
	})
	if _, err := c.Relay(t.Context(), c.URL("/x"), small, nil); err != nil {
		t.Error(err)
	}
}
