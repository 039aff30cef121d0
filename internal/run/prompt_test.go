package run

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The estimate of the first model call has the definitions of the request's own tools: the provider counts them.
func TestTheDefinitionsOfTheRequestsToolsAreEstimated(t *testing.T) { // I01
	for name, c := range map[string]struct {
		limit int64
		want  event.Reason
		calls int
	}{
		"with room for them":    {20_000, event.Complete, 1},
		"without room for them": {9_000, event.Tokens, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, nil, says("done"))
			s.req.ClientTools = []model.Tool{{Definition: tool.Definition{
				Name: "theirs", Description: strings.Repeat("x", 30_000), InputSchema: []byte(`{"type":"object"}`),
			}}}
			s.req.Policy.Limits.Tokens = c.limit
			if end := s.run(t); end.Reason != c.want || s.model.calls() != c.calls {
				t.Errorf("%s after %d model calls, want %s after %d", end.Reason, s.model.calls(), c.want, c.calls)
			}
		})
	}
}
