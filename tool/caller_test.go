package tool_test

import (
	"context"
	"encoding/json"
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

func TestKeysAreDifferentForDifferentCallers(t *testing.T) {
	seen := map[string]tool.CallerKey{}
	for _, key := range []tool.CallerKey{
		{}, {ID: "ada"}, {ID: "ada", Org: "acme"}, {ID: "ada", Org: "beta"}, {ID: `acme"ada`}, {ID: `org:"acme"ada`}, {ID: "org:"},
		{Org: `a"b`, ID: `c"d`}, {Org: "acme"},
	} {
		text, err := json.Marshal(key)
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[string(text)]; taken {
			t.Errorf("%+v and %+v are both %s", key, other, text)
		}
		seen[string(text)] = key
		var again tool.CallerKey
		if err := json.Unmarshal(text, &again); err != nil || again != key {
			t.Errorf("%+v is %s, which is %+v, %v", key, text, again, err)
		}
	}
	ada := tool.Caller{ID: "ada", Permissions: []string{"*"}}
	if got := ada.Key(); got != ada.Key().Caller().Key() || got.String() != "ada" {
		t.Error(got)
	}
}

func ExampleFrom() {
	greet := func(ctx context.Context) string { return "Hello, " + tool.From(ctx).Caller.ID + "." }
	ctx := tool.With(context.Background(), tool.Call{Key: "0.0", Caller: tool.Caller{ID: "ada"}})
	fmt.Println(greet(ctx), tool.From(context.Background()).Caller.May("greet"))
	// Output: Hello, ada. false
}
