package responses

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// relaying is a model of a provider that speaks the Responses API.
type relaying struct{ relay.Model }

func (relaying) Stream(context.Context, *model.Request, func(model.Delta) error) (*model.Turn, error) {
	panic("not called")
}

func (relaying) Relays(dialect string) bool { return dialect == model.DialectResponses }

// translating is a model of a provider of another dialect.
type translating struct{ model.Model }

// decoded decodes a request for a model of another dialect.
func decoded(body string) (*run.Request, surface.Reply, error) {
	return decodedFor(translating{}, body)
}

func decodedFor(m model.Model, body string) (*run.Request, surface.Reply, error) {
	members, err := surface.Scan(nil, []byte(body))
	if err != nil {
		return nil, surface.Reply{}, err
	}
	req := &run.Request{Input: run.Input{Model: "m", Targets: []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: m}}}}
	reply, err := decodeWith(req, members)
	return req, reply, err
}

// decodeWith decodes a request of an org without anything stored.
func decodeWith(req *run.Request, members []surface.Member) (surface.Reply, error) {
	r := requestReader{items: &storedItems{&storedResponses{lookup: lookup{store: new(memory.Conversations)}}}}
	return r.decodeRequest(context.Background(), caller.Caller{Org: &org.Org{ID: "acme"}}, req, members)
}

// The values that are accepted, and the errors of the others. // B08
func TestMaxToolCalls(t *testing.T) {
	for text, want := range map[string]struct {
		n      int
		reason string
	}{
		"null": {0, ""}, "1": {1, ""}, "10": {10, ""}, "2147483648": {math.MaxInt32, ""}, "99999999999999999999": {math.MaxInt32, ""},
		"0": {0, "integer_below_min_value"}, "-1": {0, "integer_below_min_value"}, "-99999999999999999999": {0, "integer_below_min_value"},
		`"2"`: {0, "invalid_type"}, "2.5": {0, "invalid_type"}, "true": {0, "invalid_type"}, "[]": {0, "invalid_type"}, "1e2": {0, "invalid_type"},
	} {
		_, reply, err := decoded(`{"model":"m","input":"hi","max_tool_calls":` + text + `}`)
		if reply.Calls != want.n && err == nil || (err != nil) != (want.reason != "") {
			t.Errorf("%s: %d %v", text, reply.Calls, err)
			continue
		}
		if f := fault.From(err); err != nil && (f.Reason != want.reason || f.Param != "max_tool_calls" || f.Code != fault.Invalid) {
			t.Errorf("%s: %+v", text, f)
		}
	}
}

// What a request says of prompts that are too long: a provider of the dialect does it itself, for others
// the run does. // P50
func TestTruncationAndContextManagement(t *testing.T) {
	for _, tt := range []struct {
		members string
		context surface.Context
		own     bool
		params  string
	}{
		{"", surface.Context{}, false, ""},
		{`"truncation":null,"context_management":null`, surface.Context{}, false, ""},
		{`"truncation":"disabled"`, surface.Context{Mode: "off"}, false, "truncation"},
		{`"truncation":"auto"`, surface.Context{Mode: "prune"}, true, "truncation"},
		{`"context_management":[{"type":"compaction","compact_threshold":2000}]`, surface.Context{Mode: "auto", At: 2000, Listed: true}, true, "context_management"},
		{`"truncation":"disabled","context_management":[{"type":"compaction"}]`, surface.Context{Mode: "auto", Listed: true}, true, "truncation context_management"},
		{`"context_management":[{"type":"compaction"}],"truncation":"auto"`, surface.Context{Mode: "auto", Listed: true}, true, "context_management truncation"},
	} {
		body := `{"model":"m","input":"hi"}`
		if tt.members != "" {
			body = `{"model":"m","input":"hi",` + tt.members + `}`
		}
		for _, m := range []model.Model{translating{}, relaying{}} {
			req, reply, err := decodedFor(m, body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.context, reply.Context); diff != "" {
				t.Errorf("%s: %s", tt.members, diff)
			}
			var names []string
			for _, p := range req.Params {
				if names = append(names, p.Name); !p.Typed {
					t.Errorf("%s: %s is named as left out", tt.members, p.Name)
				}
			}
			if got := strings.Join(names, " "); got != tt.params || req.OwnContext != tt.own || reply.Native != tt.own {
				t.Errorf("%s: %q %v %v", tt.members, got, req.OwnContext, reply.Native)
			}
		}
	}
	for _, value := range []string{`"truncation":"none"`, `"truncation":7`, `"context_management":{"edits":[{"type":"compact_20260112"}]}`} {
		if _, _, err := decoded(`{"model":"m","input":"hi",` + value + `}`); fault.From(err).Code != fault.Invalid {
			t.Errorf("%s: %v", value, err)
		}
	}
}
