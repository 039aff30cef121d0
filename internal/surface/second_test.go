package surface_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The plain surface is a whole surface: {"model","input","stream"} ─► {"text","ended"}.

var plainTypes = map[fault.Code]string{fault.Invalid: "yours", fault.NotFound: "yours", fault.Limited: "wait", fault.Upstream: "theirs"}

var plainEnds = map[event.Reason]string{"": "done", event.MaxRounds: "limit"}

type plainAnswer struct {
	Text  string `json:"text"`
	Ended string `json:"ended"`
}

func plain() surface.Surface {
	return surface.Surface{
		Name: "plain", Dialect: "plain", RelayPath: "/plain", Decode: decodePlain,
		Errors: &surface.Errors{
			Types: plainTypes, Codes: map[string]string{"model_not_found": "no_such_model"},
			Object: func(e surface.Error) any {
				return map[string]string{"whose": cmp.Or(e.Type, "ours"), "why": e.Code, "says": e.Message}
			},
		},
	}
}

func decodePlain(_ context.Context, _ caller.Caller, req *run.Request, members []surface.Member) (surface.Reply, error) {
	reply := surface.Reply{
		Object:  func(a *surface.Answer) surface.Object { return plainObject{a} },
		Encoder: func(s *surface.Stream) surface.Encoder { return plainEncoder{s} },
	}
	for _, m := range members {
		var into any
		var input string
		switch m.Name {
		case "input":
			into = &input
		case "stream":
			into = &reply.Stream
		default:
			continue
		}
		if json.Unmarshal(m.Value, into) != nil {
			return reply, fault.New(fault.Invalid, "invalid_type", "%s has the wrong type", m.Name).In(m.Name)
		}
		if m.Name == "input" {
			req.Items = []item.Item{item.NewText(item.User, input)}
		}
	}
	return reply, nil
}

type plainObject struct{ *surface.Answer }

// Event implements surface.Object.
func (plainObject) Event(event.Event) error { return nil }

// Value implements surface.Object.
func (a plainObject) Value() any { return plainAnswer{a.FinalText(), a.FinishWord(plainEnds)} }

type plainEncoder struct{ *surface.Stream }

// Event implements surface.Encoder.
func (e plainEncoder) Event(ev event.Event) error {
	if text, ok := ev.(event.TextDelta); ok && e.Live {
		e.SendJSON("text", text.Text)
	}
	return nil
}

// Finish implements surface.Encoder.
func (e plainEncoder) Finish() { e.SendJSON("ended", e.FinishWord(plainEnds)) }

// Fail implements surface.Encoder.
func (e plainEncoder) Fail(object []byte) { e.Send("failed", object) }

// A second surface is a decoder, an encoder and its words. The runner, the loop, tools,
// limits, keys and errors are those of every surface.
func TestASecondSurfaceIsADecoderAnEncoderAndItsWords(t *testing.T) {
	const tools = "call c1 search {}\n\ntext It is a \ntext language.\n"
	for _, tt := range []struct {
		name, story, body string
		status            int
		want              string
	}{
		{"an answer", tools, `{"model":"m","input":"hi"}`, 200, `{"text":"It is a language.","ended":"done"}`},
		{"a stream", tools, `{"model":"m","input":"hi","stream":true}`, 200,
			"event: text\ndata: \"It is a \"\n\nevent: text\ndata: \"language.\"\n\nevent: ended\ndata: \"done\""},
		{"a limit", "text Wait.\ncall c1 search {}\n\ncall c2 search {}\n\ncall c3 search {}\n", `{"model":"m","input":"hi"}`, 200, `{"text":"Wait.","ended":"limit"}`},
		{"an unknown model", "", `{"model":"x","input":"hi"}`, 404, `{"says":"no provider serves the model \"x\"; known are: m","whose":"yours","why":"no_such_model"}`},
		{"a wrong type", "", `{"model":"m","input":1}`, 400, `{"says":"input has the wrong type","whose":"yours","why":"invalid_type"}`},
		{"a bad body", "", `{"model":"m"`, 400, `"whose":"yours","why":"invalid_json"`},
		{"a provider's error", "fail 422 too odd\n", `{"model":"m","input":"hi"}`, 422, `"whose":"yours"`},
		{"a provider's failure", "fail 401 no such key\n", `{"model":"m","input":"hi"}`, 502, `"whose":"theirs","why":"upstream_credential_refused"`},
		{"a failure in a stream", "text Hel\nfail 400 broken\n", `{"model":"m","input":"hi","stream":true}`, 200, "event: text\ndata: \"Hel\"\n\nevent: failed\ndata: {"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := servePlain(t, tt.story, tt.body)
			if got := strings.TrimSpace(w.Body.String()); w.Code != tt.status || !strings.Contains(got, tt.want) {
				t.Errorf("status %d: %s\nwant %d: %s", w.Code, got, tt.status, tt.want)
			}
			if ran := tt.story != ""; ran != (w.Header().Get("Turnpike-Run-Id") != "") {
				t.Errorf("header %v", w.Header())
			}
		})
	}
}

// servePlain answers a request to the plain surface, with a model that plays the story.
func servePlain(t *testing.T, story, body string) *httptest.ResponseRecorder {
	t.Helper()
	offered := catalog.New(catalog.Options{})
	defer offered.Close()
	h := surface.New(surface.Options{
		MaxRoundsCap: func() int { return 2 }, Heartbeats: sse.NewHeartbeats(0), Log: slog.New(slog.DiscardHandler),
		Router: route.New([]route.Provider{{Name: "up", Models: []string{"m"}, Model: turnpiketest.NewScript(t, story)}}),
		Runner: run.New(run.Options{Catalog: offered, Journal: &memory.Journal{}, Conversations: &memory.Conversations{}}),
	}, plain())
	search := turnpiketest.NewSource(turnpiketest.Tool{Name: "search", Class: tool.Read, Result: "found"})
	caller := caller.Caller{
		Org: &org.Org{ID: "o", MCPOutbound: true}, Principal: org.Principal{ID: "p", Role: org.Owner},
		Servers: []catalog.Server{{Name: "tools", Source: search}},
	}
	w := httptest.NewRecorder()
	if err := h.Serve(w, httptest.NewRequest(http.MethodPost, "/plain", strings.NewReader(body)), caller); err != nil {
		plain().Errors.Write(w, err)
	}
	return w
}
