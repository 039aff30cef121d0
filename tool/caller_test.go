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

func TestOwnersAreDifferentForDifferentCallers(t *testing.T) {
	seen := map[string]tool.Caller{}
	for _, c := range []tool.Caller{
		{}, {ID: "ada"}, {ID: "ada", Org: "acme"}, {ID: "ada", Org: "beta"}, {ID: `acme"ada`}, {ID: `org:"acme"ada`}, {ID: "org:"}, {Org: `a"b`, ID: `c"d`}, {Org: "acme"},
	} {
		owner := c.Owner()
		if other, taken := seen[owner]; taken {
			t.Errorf("%+v and %+v are both %q", c, other, owner)
		}
		seen[owner] = c
		if again := tool.CallerOf(owner); again.ID != c.ID || again.Org != c.Org {
			t.Errorf("%+v is %q, which is %+v", c, owner, again)
		}
	}
	if got := (tool.Caller{ID: "ada"}).Owner(); got != "ada" {
		t.Error(got)
	}
}

func ExampleFrom() {
	greet := func(ctx context.Context) string { return "Hello, " + tool.From(ctx).Caller.ID + "." }
	ctx := tool.With(context.Background(), tool.Call{Key: "0.0", Caller: tool.Caller{ID: "ada"}})
	fmt.Println(greet(ctx), tool.From(context.Background()).Caller.May("greet"))
	// Output: Hello, ada. false
}
