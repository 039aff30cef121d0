package responses

import (
	"context"
	"math"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// relaying is a model of a provider that speaks the Responses API.
type relaying struct{ model.Relayer }

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
	req := &run.Request{Model: "m", Targets: []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: m}}}
	reply, err := decodeWith(req, members)
	return req, reply, err
}

// decodeWith decodes a request of an org without anything stored.
func decodeWith(req *run.Request, members []surface.Member) (surface.Reply, error) {
	h := &Handler{o: Options{Conversations: new(memory.Conversations)}}
	return h.decodeRequest(context.Background(), run.Caller{Org: &org.Org{ID: "acme"}}, req, members)
}

// B08: the values that are accepted, and the errors of the others.
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
