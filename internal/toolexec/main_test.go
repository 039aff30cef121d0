package toolexec

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeTool does what its function does.
type fakeTool struct {
	def  tool.Definition
	call func(ctx context.Context, c tool.Call) (tool.Result, error)
}

func (f fakeTool) Definition() tool.Definition { return f.def }

func (f fakeTool) Class() tool.Class { return tool.Read }

func (f fakeTool) Call(ctx context.Context, c tool.Call) (tool.Result, error) { return f.call(ctx, c) }

type source []tool.Tool

func (s source) List(context.Context) ([]tool.Tool, error) { return s, nil }

const schemaOfN = `{"type":"object","properties":{"n":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}},"required":["n"],"additionalProperties":false}`

// newSet returns a set with the tools add, which wants {"n": integer}, and free,
// which takes everything; a third one, hidden, is not on the list.
func newSet(t testing.TB, call func(context.Context, tool.Call) (tool.Result, error)) *catalog.Set {
	t.Helper()
	define := func(name, schema string) tool.Tool {
		return fakeTool{tool.Definition{Name: name, InputSchema: json.RawMessage(schema)}, call}
	}
	c := catalog.New(catalog.Options{})
	defer c.Close()
	set, err := c.For(context.Background(), "o", []catalog.Server{{
		Name: "s", Tools: []string{"add", "free"}, Polling: []string{"free"},
		Source: source{define("add", schemaOfN), define("free", `{"type":"object"}`), define("hidden", `{"type":"object"}`)},
	}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return set
}
