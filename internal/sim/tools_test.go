package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/turnpike-gateway/turnpike/tool"
)

// server is an org's tool server, as a process reaches it.
type server struct {
	p   *process
	org string
}

// List implements tool.Source.
func (s server) List(ctx context.Context) ([]tool.Tool, error) {
	f := s.p.w.swarm.tools
	f.lost, f.unanswered = s.p.w.swarm.listFails, 0
	return ask(ctx, s.p, "lists the tools of", s.org, f, func(*rand.Rand) ([]tool.Tool, error) {
		var out []tool.Tool
		for _, class := range classes() {
			out = append(out, hammer{s, class})
		}
		return out, nil
	})
}

func classes() []tool.Class { return []tool.Class{tool.Read, tool.Keyed, tool.Once} }

// hammer is a tool of one class.
type hammer struct {
	server
	class tool.Class // what it is, whatever it is taken for
}

// Definition implements tool.Tool.
func (h hammer) Definition() tool.Definition {
	return tool.Definition{
		Name: string(h.class), Description: "does what " + h.org + " needs",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`),
	}
}

// Class implements tool.Classed.
func (h hammer) Class() tool.Class { return h.p.w.mutation.claims(h.class) }

// Call implements tool.Tool.
func (h hammer) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	w := h.p.w
	return ask(ctx, h.p, fmt.Sprintf("calls %s for", h.class), h.org+"/"+c.RunID+"/"+c.Key, w.swarm.dying(w.swarm.tools), func(r *rand.Rand) (tool.Result, error) {
		c.IdempotencyKey = w.mutation.key(c, fmt.Sprint(r.Uint32()))
		n := w.book.affected(h.p, runKey{h.org, c.RunID}, h.class, c)
		if r.IntN(8) == 0 {
			return tool.Error("no luck in org=" + h.org), nil
		}
		text := fmt.Sprintf("org=%s %s effect %d", h.org, c.Key, n)
		if w.book.of(runKey{h.org, c.RunID}).turn != nil || len(w.talks) > 0 {
			text += fmt.Sprintf(" %s%s/%s/%d", resultMark, c.RunID, c.Key, c.Attempt)
		}
		return tool.Text(text), nil
	})
}

var _ tool.Classed = hammer{}
