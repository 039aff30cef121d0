package upstreamtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// upstream starts an Upstream and an adapter that speaks to it.
func upstream(t *testing.T, story string, o upstreamtest.Options) (*upstreamtest.Upstream, model.Model) {
	u := upstreamtest.New(turnpiketest.NewScript(t, story), o)
	transport := &http.Transport{}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		u.Close()
	})
	return u, openai.New(wire.Endpoint{BaseURL: u.URL, Transport: transport}, openai.Options{})
}

const everything = `reasoning Hm.
text Looking 👋
text " it\nup."
call c1 search {"q":"日本"}
call c2 read {broken
call c3 list
usage 12 5
`

func TestAnAdapterReadsTheSameOverTheWireAndInTheProcess(t *testing.T) {
	for _, story := range []string{everything, "refusal No.\nstop content_filter", "text a\nstop length", "call a x {}\ncall b x {}\nstop length", "call a x {}\ncall b x {}\ncut", "text a\nfail 503 overloaded"} {
		want, said, wantErr := stream(t.Context(), turnpiketest.NewScript(t, story))
		for _, o := range []upstreamtest.Options{{}, {Piece: 1}, {Piece: 7}, {Piece: 64, Gap: time.Millisecond}} {
			t.Run(fmt.Sprintf("%.12q in pieces of %d", story, o.Piece), func(t *testing.T) {
				_, m := upstream(t, story, o)
				got, deltas, err := stream(t.Context(), m)
				compare(t, want, got, wantErr, err)
				if d := cmp.Diff(said, deltas); d != "" {
					t.Error(d)
				}
			})
		}
	}
}

// compare checks what both ways must agree on.
func compare(t *testing.T, want, got *model.Turn, wantErr, gotErr error) {
	t.Helper()
	var a, b *model.Error
	if errors.As(wantErr, &a) != errors.As(gotErr, &b) || a != nil && (a.Class != b.Class || a.Status != b.Status) {
		t.Errorf("error %v, want %v", gotErr, wantErr)
	}
	if got == nil || want == nil {
		t.Fatalf("turn %v, want %v", got, want)
	}
	if d := cmp.Diff(want.Calls, got.Calls); d != "" {
		t.Error(d)
	}
	if got.ID != want.ID || got.Stop != want.Stop || got.Usage != want.Usage || got.Text() != want.Text() {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func post(t *testing.T, u *upstreamtest.Upstream, body string) (int, http.Header, string, error) {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL+"/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Mark", "1")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(got), err
}

func TestAnUpstreamKeepsEveryRequestByteForByte(t *testing.T) {
	u, _ := upstream(t, "text a\nagain", upstreamtest.Options{})
	bodies := []string{"{\"model\" : \"m\",\n\t\"x\":1e2 }", `{"model":"\u006d"}`}
	for _, b := range bodies {
		if status, _, answer, err := post(t, u, b); status != http.StatusOK || err != nil || !strings.Contains(answer, `"content":"a"`) {
			t.Errorf("%d %s %v", status, answer, err)
		}
	}
	for i, r := range u.Requests() {
		if string(r.Body) != bodies[i] || r.Header.Get("X-Mark") != "1" || r.Path != "/v1/chat/completions" || r.At.IsZero() {
			t.Errorf("request %d: %+v", i, r)
		}
	}
}

func TestAnUpstreamAnswersInTheFormThatIsAskedFor(t *testing.T) {
	const story = "text a\ncall c1 x {\"n\":1}\nusage 3 4\nagain"
	for name, row := range map[string]struct {
		body, kind string
		has, not   []string
	}{
		"one object":           {`{"model":"m"}`, "application/json", []string{`"finish_reason":"tool_calls"`, `"total_tokens":7`}, []string{"data:"}},
		"a stream":             {`{"model":"m","stream":true}`, "text/event-stream", []string{`"finish_reason":"tool_calls"`, "data: [DONE]\n\n"}, []string{"usage"}},
		"a stream with counts": {`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`, "text/event-stream", []string{`"choices":[],"usage":{"prompt_tokens":3`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			u, _ := upstream(t, story, upstreamtest.Options{})
			status, header, answer, err := post(t, u, row.body)
			if status != http.StatusOK || err != nil || header.Get("Content-Type") != row.kind {
				t.Fatal(status, header, err)
			}
			for _, s := range row.has {
				if !strings.Contains(answer, s) {
					t.Errorf("no %s in %s", s, answer)
				}
			}
			for _, s := range row.not {
				if strings.Contains(answer, s) {
					t.Errorf("%s in %s", s, answer)
				}
			}
		})
	}
}

func TestAnUpstreamFailsAsToldTo(t *testing.T) {
	u, _ := upstream(t, "fail 429 retry-after 3 slow down\n\ntext a\ncut\n\ntext a\ncut\n", upstreamtest.Options{})
	status, header, answer, err := post(t, u, `{"model":"m"}`)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "3" || !strings.Contains(answer, "slow down") || err != nil {
		t.Error(status, header, answer, err)
	}
	if _, _, _, err := post(t, u, `{"model":"m"}`); err == nil {
		t.Error("an object that was cut came whole")
	}
	if status, _, answer, err := post(t, u, `{"model":"m","stream":true}`); status != http.StatusOK || err == nil || strings.Contains(answer, "[DONE]") {
		t.Error(status, answer, err)
	}
	if status, _, answer, _ := post(t, u, `{"model":"m"}`); status != http.StatusBadRequest || !strings.Contains(answer, "no turn 4") {
		t.Error(status, answer)
	}
	if status, _, answer, _ := post(t, u, `{`); status != http.StatusBadRequest || !strings.Contains(answer, "not valid JSON") {
		t.Error(status, answer)
	}
}

func TestClosingAnUpstreamEndsWhatHangs(t *testing.T) {
	for _, body := range []string{`{"model":"m"}`, `{"model":"m","stream":true}`} {
		u, _ := upstream(t, "wait 1ms\nhang", upstreamtest.Options{})
		done := make(chan error)
		go func() {
			_, _, _, err := post(t, u, body)
			done <- err
		}()
		if err := u.Await(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		u.Close()
		if err := <-done; err == nil {
			t.Error("a model that hangs has answered")
		}
	}
}

// stream plays the next turn and returns it with the deltas.
func stream(ctx context.Context, m model.Model) (*model.Turn, []model.Delta, error) {
	var deltas []model.Delta
	req := &model.Request{Model: "scripted", Items: []item.Item{item.NewText(item.User, "hi")}}
	turn, err := m.Stream(ctx, req, func(d model.Delta) error {
		deltas = append(deltas, d)
		return nil
	})
	return turn, deltas, err
}
