package openai

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/model"
)

// pieces answers with the given pieces, flushed one by one, then waits for hold.
func pieces(hold <-chan struct{}, list ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, s := range list {
			_, _ = io.WriteString(w, s)
			_ = http.NewResponseController(w).Flush()
		}
		if hold != nil {
			<-hold
		}
	}
}

func TestStreamRequest(t *testing.T) {
	var got http.Header
	var body []byte
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
		if r.URL.Path != "/v1/chat/completions" || r.Method != "POST" || r.ContentLength != int64(len(body)) {
			t.Error(r.Method, r.URL, r.ContentLength)
		}
		_, _ = io.WriteString(w, end("stop"))
	}, func(e *wire.Endpoint) { e.APIKey = func(context.Context) (string, error) { return "k", nil } })
	if _, err := p.Stream(t.Context(), &model.Request{Model: "m"}, (&providertest.Heard{}).Emit); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"Authorization": "Bearer k", "Content-Type": "application/json", "Accept-Encoding": "identity"} {
		if got.Get(name) != want {
			t.Errorf("%s: %q", name, got.Get(name))
		}
	}
	if !strings.Contains(string(body), `"include_usage":true`) {
		t.Errorf("%s", body)
	}
}

func TestKeys(t *testing.T) {
	down := errors.New("vault is down")
	for _, tt := range []struct {
		name, key, header string
		err               error
		auth, other       string
	}{
		{"no key", "", "", nil, "", ""},
		{"a key", "k", "", nil, "Bearer k", ""},
		{"a key in its own field", "k", "Api-Key", nil, "", "k"},
		{"no vault", "", "", down, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got http.Header
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				got = r.Header.Clone()
				_, _ = io.WriteString(w, end("stop"))
			}, func(e *wire.Endpoint) {
				e.APIKey, e.KeyHeader = func(context.Context) (string, error) { return tt.key, tt.err }, tt.header
			})
			_, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
			var e *model.Error
			if tt.err != nil {
				if !errors.As(err, &e) || e.Class != model.Target || !errors.Is(err, down) || got != nil {
					t.Error(err)
				}
				return
			}
			if err != nil || got.Get("Authorization") != tt.auth || got.Get("Api-Key") != tt.other {
				t.Error(err, got)
			}
		})
	}
}

// Deltas are reported before the next bytes come.
func TestDeltasArriveAtOnce(t *testing.T) {
	next := make(chan struct{})
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, s := range []string{delta(`"content":"a"`), delta(`"content":"b"`), end("stop") + done} {
			_, _ = io.WriteString(w, s)
			_ = http.NewResponseController(w).Flush()
			if strings.Contains(s, "content") {
				<-next
			}
		}
	})
	turn, err := p.Stream(t.Context(), &model.Request{}, func(model.Delta) error { next <- struct{}{}; return nil })
	if err != nil || turn.Text() != "ab" {
		t.Error(turn, err)
	}
}

func TestEmitErrorComesBackAsItIs(t *testing.T) {
	enough := errors.New("enough")
	p := serve(t, pieces(nil, delta(`"content":"a"`), delta(`"content":"b"`)))
	if _, err := p.Stream(t.Context(), &model.Request{}, func(model.Delta) error { return enough }); err != enough {
		t.Error(err)
	}
}

func TestCallerGone(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	p := serve(t, pieces(hold, delta(`"content":"a"`)))
	ctx, cancel := context.WithCancel(t.Context())
	turn, err := p.Stream(ctx, &model.Request{}, func(model.Delta) error { cancel(); return nil })
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.Gone || !errors.Is(err, context.Canceled) || turn == nil || turn.Text() != "a" || turn.Stop != "" {
		t.Error(turn, err)
	}
	if _, err := p.Stream(ctx, &model.Request{}, (&providertest.Heard{}).Emit); !errors.As(err, &e) || e.Class != model.Gone {
		t.Error(err)
	}
	if _, err := p.Relay(ctx, &relay.Request{Path: chatPath}); !errors.As(err, &e) || e.Class != model.Gone {
		t.Error(err)
	}
}

func TestSilence(t *testing.T) {
	for _, tt := range []struct {
		name  string
		parts []string
		want  string // the text of the turn
		fails bool
	}{
		{"before the header", nil, "", true},
		{"in the stream", []string{delta(`"content":"a"`)}, "a", true},
		{"after the finish reason", []string{delta(`"content":"a"`) + end("stop")}, "a", false},
		{"after [DONE]", []string{delta(`"content":"a"`) + done}, "a", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hold := make(chan struct{})
			defer close(hold)
			p := serve(t, pieces(hold, tt.parts...), func(e *wire.Endpoint) { e.Silence = 100 * time.Millisecond })
			turn, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
			var e *model.Error
			if tt.fails && (!errors.As(err, &e) || e.Class != model.Transient || !errors.Is(err, wire.ErrSilent)) || !tt.fails && err != nil {
				t.Error(err)
			}
			if tt.want != "" && turn.Text() != tt.want {
				t.Error(turn)
			}
		})
	}
}

func TestDroppedConnection(t *testing.T) { // G07
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, callPiece(`{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}}`)+callPiece(`{"index":1,"id":"2","function":{"name":"g","arguments":"{"}}`))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	turn, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
	var e *model.Error
	if !errors.As(err, &e) || e.Class != model.Transient || e.Status != 200 {
		t.Fatal(err)
	}
	if len(turn.Calls) != 2 || !turn.Calls[0].Complete || turn.Calls[1].Complete || len(turn.Items) != 1 {
		t.Errorf("%+v", turn.Calls)
	}
}

// A connection is used again after a stream.
func TestConnectionsAreKept(t *testing.T) {
	var mu sync.Mutex
	dials := 0
	p := serve(t, pieces(nil, delta(`"content":"a"`)+end("stop"), done), func(e *wire.Endpoint) {
		tr := e.Transport.(*http.Transport)
		dial := tr.DialContext
		tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dials++
			return dial(ctx, network, addr)
		}
	})
	for range 5 {
		if _, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit); err != nil {
			t.Fatal(err)
		}
	}
	if dials != 1 {
		t.Errorf("%d connections", dials)
	}
}
