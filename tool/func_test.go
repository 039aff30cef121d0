package tool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

type query struct {
	City string            `json:"city" jsonschema:"In English."`
	Days int               `json:"days,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
}

func ask[Out any](t *testing.T, f func(context.Context, query) (Out, error), arguments string) (tool.Result, error) {
	t.Helper()
	return tool.Func("ask", "", f).Call(t.Context(), tool.Call{Key: "0.0", Arguments: json.RawMessage(arguments)})
}

func TestWhatAFunctionReturns(t *testing.T) {
	text := func(r tool.Result, err error) string {
		if err != nil || len(r.Parts) != 1 {
			return fmt.Sprint(r, err)
		}
		return fmt.Sprintf("%s %s %v", r.Parts[0].Text, r.Structured, r.IsError)
	}
	for want, got := range map[string]string{
		"Bern  false": text(ask(t, func(_ context.Context, in query) (string, error) { return in.City, nil }, `{"city":"Bern"}`)),
		"7  false":    text(ask(t, func(context.Context, query) (int, error) { return 7, nil }, `{}`)),
		`{"a":1} {"a":1} false`: text(ask(t, func(context.Context, query) (any, error) {
			return map[string]int{"a": 1}, nil
		}, ``)),
		"own  true":           text(ask(t, func(context.Context, query) (tool.Result, error) { return tool.Error("own"), nil }, `{}`)),
		"no such city  true":  text(ask(t, func(context.Context, query) (int, error) { return 0, errors.New("no such city") }, `{}`)),
		"null  false":         text(ask(t, func(context.Context, query) (*query, error) { return nil, nil }, `{}`)),
		"[1,2]  false":        text(ask(t, func(context.Context, query) ([]int, error) { return []int{1, 2}, nil }, `{}`)),
		"invalid arguments: ": text(ask(t, func(context.Context, query) (int, error) { return 0, nil }, `{"city":7}`))[:len("invalid arguments: ")],
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if r, err := ask(t, func(context.Context, query) (int, error) { return 0, fmt.Errorf("%w: no connection", tool.ErrNotSent) }, `{}`); !errors.Is(err, tool.ErrNotSent) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestTheSchemaOfAFunction(t *testing.T) {
	f := tool.Func("ask", "Asks.", func(context.Context, query) (string, error) { return "", nil }).
		Schema(`{"properties":{"days":{"maximum":7},"tags":null}}`).Title("Ask")
	var schema struct {
		Type       string
		Required   []string
		Properties map[string]struct {
			Type, Description string
			Maximum           int
		}
	}
	if err := json.Unmarshal(f.Definition().InputSchema, &schema); err != nil || f.Check() != nil {
		t.Fatal(err, f.Check())
	}
	if schema.Type != "object" || len(schema.Required) != 1 || schema.Properties["city"].Description != "In English." || schema.Properties["days"].Maximum != 7 || len(schema.Properties) != 2 {
		t.Errorf("%s", f.Definition().InputSchema)
	}
	if err := f.Schema("{").Check(); err == nil || !strings.Contains(err.Error(), "patch") {
		t.Error(err)
	}
	if _, err := tool.NewFunc("x", "", func(context.Context, int) (int, error) { return 0, nil }); err == nil {
		t.Error("arguments that are a number")
	}
	if _, err := tool.NewFunc("x", "", func(context.Context, struct{ F func() }) (int, error) { return 0, nil }); err == nil {
		t.Error("arguments without a schema")
	}
	if _, err := tool.NewFunc[struct{}, int]("x", "", nil); err == nil {
		t.Error("no function")
	}
	defer func() {
		if recover() == nil {
			t.Error("Func does not panic")
		}
	}()
	tool.Func("x", "", func(context.Context, []int) (int, error) { return 0, nil })
}

func TestWhatAFunctionSaysOfItself(t *testing.T) {
	newFunc := func() *tool.Function[query] {
		return tool.Func("ask", "", func(ctx context.Context, _ query) (string, error) { return tool.From(ctx).IdempotencyKey, nil })
	}
	for class, f := range map[tool.Class]*tool.Function[query]{
		tool.Once: newFunc().Destructive(), tool.Read: newFunc().ReadOnly().Key(func(query) string { return "" }), tool.Keyed: newFunc().Idempotent(),
	} {
		if got := tool.ClassOf(f); got != class {
			t.Errorf("%s, want %s", got, class)
		}
	}
	f := newFunc().Key(func(in query) string { return in.City }).ApproveIf(func(in query) bool { return in.Days > 3 })
	r, err := f.Call(t.Context(), tool.Call{Arguments: json.RawMessage(`{"city":"Bern"}`), IdempotencyKey: "other"})
	if err != nil || r.Parts[0].Text != "ask:Bern" || f.EffectKey(json.RawMessage(`{"city":"Bern"}`)) != "ask:Bern" || f.EffectKey(json.RawMessage(`{}`)) != "" {
		t.Errorf("%+v, %v", r, err)
	}
	for arguments, want := range map[string]bool{`{"days":4}`: true, `{"days":3}`: false, `{"days":"x"}`: true} {
		if got := f.Asks(json.RawMessage(arguments)); got != want {
			t.Errorf("%s: %v", arguments, got)
		}
	}
}

func TestATimeout(t *testing.T) {
	f := tool.Func("wait", "", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}).Timeout(time.Nanosecond)
	if _, err := f.Call(t.Context(), tool.Call{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody knows what it has done: %v", err)
	}
}
