package resource_test

import (
	"context"
	"encoding/json"
	"testing"

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
