package chat_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// What the model says in round 0 is at the client before the tool of round 0
// has answered. // G04
func TestTextArrivesBeforeItsToolHasAnswered(t *testing.T) {
	NoLeaks(t)
	seen := make(chan struct{})
	tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
		select {
		case <-seen:
			return "ok", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}})
	up := NewUpstream(t, Script(Asks(Use("wait", `{}`)).Saying("Looking."), Says("Done.")))
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
	resp, err := g.Client.Do(g.Request(t.Context(), "POST", "/v1/chat/completions", strings.NewReader(StreamedQuestion)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	buf := make([]byte, 1024)
	for open := true; ; {
		n, err := resp.Body.Read(buf)
		got.Write(buf[:n])
		if open && strings.Contains(got.String(), "Looking.") {
			close(seen)
			open = false
		}
		if err != nil {
			break
		}
	}
	if !strings.HasSuffix(got.String(), "data: [DONE]\n\n") || !strings.Contains(got.String(), "Done.") {
		t.Errorf("%s", got.String())
	}
}

func many(name string, n int) []Call {
	calls := make([]Call, n)
	for i := range calls {
		calls[i] = Use(name, fmt.Sprintf(`{"n":%d}`, i))
	}
	return calls
}

// A client that leaves cancels the model and the tools. The time is
// measured where they are, from the moment of leaving. // O01 G18
func TestAClientThatLeavesCancelsWhatItHasBegun(t *testing.T) {
	const soon = 100 * time.Millisecond
	for _, loopOn := range []bool{true, false} {
		for _, request := range []string{Question, StreamedQuestion} {
			t.Run(fmt.Sprintf("the model, loop %t, stream %t", loopOn, request == StreamedQuestion), func(t *testing.T) {
				NoLeaks(t)
				reached, ended := make(chan struct{}), make(chan time.Time, 1)
				up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) {
					w.Header().Set("Content-Type", "text/event-stream")
					Frame(w, `{"choices":[{"index":0,"delta":{"content":"x"}}]}`)
					_ = http.NewResponseController(w).Flush()
					close(reached)
					<-r.Context().Done()
					ended <- time.Now()
				})
				tools := NewMCP(t, map[string]Handler{"echo": Echo})
				s := Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}
				if !loopOn {
					s.Servers = nil
				}
				left := leave(MustRun(t, s.Yaml()), request, reached)
				if took := Wait(t, ended, "the model's end").Sub(left); took > soon {
					t.Errorf("the model was cancelled after %v", took)
				}
			})
		}
	}
	for _, request := range []string{Question, StreamedQuestion} {
		t.Run(fmt.Sprintf("the tools, stream %t", request == StreamedQuestion), func(t *testing.T) {
			NoLeaks(t)
			const n = 3
			var inside sync.WaitGroup
			inside.Add(n)
			reached, ended := make(chan struct{}), make(chan time.Time, n)
			tools := NewMCP(t, map[string]Handler{"wait": func(ctx context.Context, _ string) (string, error) {
				inside.Done()
				<-ctx.Done()
				ended <- time.Now()
				return "", ctx.Err()
			}})
			up := NewUpstream(t, Script(Asks(many("wait", n)...)))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
			go func() { inside.Wait(); close(reached) }()
			left := leave(g, request, reached)
			for range n {
				if took := Wait(t, ended, "the tools' end").Sub(left); took > soon {
					t.Errorf("a tool was cancelled after %v", took)
				}
			}
			if len(up.Requests()) != 1 {
				t.Errorf("the model was asked %d times", len(up.Requests()))
			}
		})
	}
	t.Run("discovery", func(t *testing.T) {
		NoLeaks(t)
		reached, release := make(chan struct{}), make(chan struct{})
		tools := NewRawMCP(t, map[string]func(http.ResponseWriter, *http.Request, RPC){"tools/list": func(_ http.ResponseWriter, r *http.Request, _ RPC) {
			close(reached)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}})
		defer close(release)
		up := NewUpstream(t, Script(Says("hi")))
		g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
		leave(g, Question, reached)
		if err := g.Stop(); err != nil { // waits for the request: it has ended although discovery has not
			t.Error(err)
		}
		if len(up.Requests()) != 0 {
			t.Error("the model was asked")
		}
	})
}

// leave sends a request, goes away once reached is closed, and returns when it
// left.
func leave(g *Gateway, body string, reached <-chan struct{}) time.Time {
	g.T.Helper()
	ctx, cancel := context.WithCancel(g.T.Context())
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		resp, err := g.Client.Do(g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(body)))
		if err == nil {
			buf := make([]byte, 512)
			for err == nil {
				_, err = resp.Body.Read(buf)
			}
			resp.Body.Close()
		}
	}()
	Wait(g.T, reached, "the neighbour to be reached")
	left := time.Now()
	cancel()
	Wait(g.T, over, "the client's end")
	return left
}
