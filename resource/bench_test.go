package resource_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
)

// BenchmarkCall is one call of a tool of a resource, as the loop makes it: what the permission, the audit log and the
// method or the database take. docs/performance.md has the limit.
func BenchmarkCall(b *testing.B) {
	db := products(b)
	verbs := resource.TableOptions{Verbs: all()}
	for _, c := range []struct {
		name, tool, arguments string
		of                    tool.Provider
	}{
		{"value", "get_product", `{"id":"1"}`, resource.New("product", newShop())},
		{"value_audited", "get_product", `{"id":"1"}`, resource.New("product", newShop()).Audit(nowhere{})},
		{"sqlite_get", "get_products", `{"id":1}`, table(b, db, verbs)},
		{"sqlite_search", "search_products", `{"where":{"name":{"contains":"tea"}},"order_by":"price"}`, table(b, db, verbs)},
		{"sqlite_update", "update_products", `{"id":1,"set":{"cents":351}}`, table(b, db, verbs)},
	} {
		b.Run(c.name, func(b *testing.B) {
			var one tool.Tool
			for _, t := range c.of.Tools(anybody()) {
				if t.Definition().Name == c.tool {
					one = t
				}
			}
			for b.Loop() {
				r, err := one.Call(b.Context(), tool.Call{Caller: anybody(), Arguments: json.RawMessage(c.arguments)})
				if err != nil || r.IsError {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// nowhere is an auditor that keeps nothing.
type nowhere struct{}

func (nowhere) Record(context.Context, resource.Record) error { return nil }

// asks is a model that asks for n calls in its first turn, and answers in its second.
type asks struct{ n int }

func (a asks) Stream(_ context.Context, req *model.Request, _ func(model.Delta) error) (*model.Turn, error) {
	turn := &model.Turn{Stop: model.StopEnd, Usage: model.Usage{Input: 10, Output: 10, Total: 20}}
	if last := req.Items[len(req.Items)-1]; last.Kind == item.ToolResult || a.n == 0 {
		turn.Items = []item.Item{item.NewText(item.Assistant, "Done.")}
	} else {
		turn.Stop = model.StopCalls
		for i := range a.n {
			c := model.Call{ID: fmt.Sprint("c", i), Name: "get_product", Arguments: `{"id":"1"}`, Complete: true}
			turn.Calls, turn.Items = append(turn.Calls, c), append(turn.Items, c.Item())
		}
	}
	item.SetTurn(turn.Items, item.LastTurn(req.Items)+1)
	return turn, nil
}

// BenchmarkRun runs agents with and without calls of a resource: the difference of two of them, by the number of
// calls, is what a call costs with all that the loop does for it.
func BenchmarkRun(b *testing.B) {
	for _, n := range []int{0, 1, 32} {
		b.Run(fmt.Sprint(n, "_calls"), func(b *testing.B) {
			a := &turnpike.Agent{Model: asks{n}, Resources: []tool.Provider{resource.New("product", newShop()).Audit(nowhere{})}}
			for b.Loop() {
				if _, err := a.Run(b.Context(), turnpike.Text("go")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
