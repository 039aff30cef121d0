package tool_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

func TestPermissions(t *testing.T) {
	for _, c := range []struct {
		caller tool.Caller
		want   bool
	}{
		{tool.Caller{}, false},
		{tool.Caller{ID: "get_product"}, false},
		{tool.Caller{Permissions: []string{"search_product"}}, false},
		{tool.Caller{Permissions: []string{"search_product", "get_product"}}, true},
		{tool.Caller{Permissions: []string{"get_*"}}, false},
		{tool.Caller{Permissions: []string{"*"}}, true},
	} {
		if got := c.caller.May("get_product"); got != c.want {
			t.Errorf("%+v may get a product: %v", c.caller, got)
		}
	}
}

func ExampleFrom() {
	greet := func(ctx context.Context) string { return "Hello, " + tool.From(ctx).Caller.ID + "." }
	ctx := tool.With(context.Background(), tool.Call{Key: "0.0", Caller: tool.Caller{ID: "ada"}})
	fmt.Println(greet(ctx), tool.From(context.Background()).Caller.May("greet"))
	// Output: Hello, ada. false
}
