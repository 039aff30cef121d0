package turnpike_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// caller is a model that asks for n calls in its first turn, and answers in its second.
type caller struct{ n int }

func (c caller) Stream(_ context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	turn := &model.Turn{Stop: model.StopEnd, Usage: model.Usage{Input: 10, Output: 10, Total: 20}}
	if last := req.Items[len(req.Items)-1]; last.Kind == item.ToolResult || c.n == 0 {
		turn.Items = []item.Item{item.NewText(item.Assistant, "Done.")}
	} else {
		turn.Stop = model.StopCalls
		for i := range c.n {
			call := model.Call{ID: fmt.Sprint("c", i), Name: "add", Arguments: fmt.Sprintf(`{"a":%d,"b":2}`, i), Complete: true}
			turn.Calls, turn.Items = append(turn.Calls, call), append(turn.Items, call.Item())
		}
	}
	item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	return turn, nil
}

// BenchmarkDispatch runs agents with and without calls of a Go function: the difference of two of them, by
// the number of calls, is what a call costs beyond the function.
func BenchmarkDispatch(b *testing.B) {
	add := tool.Func("add", "Add two numbers.", func(_ context.Context, in struct {
		A int `json:"a"`
		B int `json:"b"`
	}) (int, error) {
		return in.A + in.B, nil
	}).ReadOnly()
	for _, n := range []int{0, 1, 10, 32} {
		b.Run(fmt.Sprint(n, "_calls"), func(b *testing.B) {
			a := &turnpike.Agent{Model: caller{n}, Tools: []tool.Tool{add}}
			for b.Loop() {
				if _, err := a.Run(b.Context(), turnpike.Text("go")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
