package tool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

// lookup is a tool that only reads.
type lookup struct{ prices map[string]int }

func (lookup) Definition() tool.Definition {
	return tool.Definition{
		Name: "price", Description: "The price of an article, in cents.",
		InputSchema: json.RawMessage(`{"type":"object","properties":{"article":{"type":"string"}},"required":["article"]}`),
	}
}

// Class says that a call may be repeated.
func (lookup) Class() tool.Class { return tool.Read }

func (l lookup) Call(_ context.Context, c tool.Call) (tool.Result, error) {
	var args struct{ Article string }
	if err := json.Unmarshal(c.Arguments, &args); err != nil {
		return tool.Result{}, err
	}
	cents, ok := l.prices[args.Article]
	if !ok {
		return tool.Error("there is no such article"), nil
	}
	return tool.Text(fmt.Sprint(cents)), nil
}

// A tool in Go that declares its class: if the answer of a call is lost, the gateway
// calls it again.
func ExampleClassed() {
	var price tool.Classed = lookup{map[string]int{"tea": 350}}
	result, err := price.Call(context.Background(), tool.Call{Arguments: json.RawMessage(`{"article":"tea"}`)})
	fmt.Println(price.Definition().Name, tool.ClassOf(price), result.Parts[0].Text, err)
	// Output: price read 350 <nil>
}

type unclassed struct{ tool.Tool }

type claims struct {
	tool.Tool
	class tool.Class
}

func (c claims) Class() tool.Class { return c.class }

func TestAClassThatIsNotDeclaredIsOnce(t *testing.T) {
	for class, want := range map[tool.Class]tool.Class{
		"": tool.Once, "reads": tool.Once, tool.Once: tool.Once, tool.Keyed: tool.Keyed, tool.Read: tool.Read, tool.Attach: tool.Attach,
	} {
		if got := tool.ClassOf(claims{class: class}); got != want {
			t.Errorf("%q counts as %q, want %q", class, got, want)
		}
	}
	if got := tool.ClassOf(unclassed{}); got != tool.Once {
		t.Errorf("a tool without a class counts as %q", got)
	}
}
