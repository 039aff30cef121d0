package surfacetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// addTool reads one line of the tools.
func (s *story) addTool(line string) error {
	left, result, ok := strings.Cut(line, " => ")
	if !ok {
		return errors.New("no result")
	}
	words, schema, ok := strings.Cut(left, "{")
	if ok {
		schema = "{" + schema
	}
	fields := strings.Fields(words)
	if len(fields) == 0 {
		return errors.New("no name")
	}
	t := turnpiketest.Tool{Name: fields[0], Schema: strings.TrimSpace(schema)}
	makes := slices.Contains(fields, "files")
	place, err := describe(&t, slices.DeleteFunc(fields[1:], func(word string) bool { return word == "files" }))
	if err != nil {
		return err
	}
	if t.Answer == nil {
		if t.Answer, err = answer(result); err != nil {
			return err
		}
	}
	if makes {
		t.Answer = structured(t.Answer)
	}
	v := s.server(place)
	v.tools = append(v.tools, t)
	return nil
}

// describe reads the words of a tool and returns its server.
func describe(t *turnpiketest.Tool, words []string) (place string, err error) {
	place = "tools"
	for i := 0; i < len(words); i++ {
		switch word, value, _ := strings.Cut(words[i], "="); word {
		case "read":
			t.Class = tool.Read
		case "server":
			place = value
		case "hang":
			t.Trouble = turnpiketest.Hang
		case "panic":
			t.Answer = func(context.Context, json.RawMessage) (tool.Result, error) { panic("the tool's own mistake") }
		case "after":
			if i++; i == len(words) {
				return "", errors.New("after what?")
			}
			if t.After, err = time.ParseDuration(words[i]); err != nil {
				return "", err
			}
		default:
			return "", fmt.Errorf("unknown word %q", word)
		}
	}
	return place, nil
}

// structured gives the text of an answer as structured content, too.
func structured(f func(context.Context, json.RawMessage) (tool.Result, error)) func(context.Context, json.RawMessage) (tool.Result, error) {
	return func(ctx context.Context, arguments json.RawMessage) (tool.Result, error) {
		r, err := f(ctx, arguments)
		if err == nil {
			r.Structured = json.RawMessage(r.Parts[0].Text)
		}
		return r, err
	}
}

// answer reads what a tool says.
func answer(result string) (func(context.Context, json.RawMessage) (tool.Result, error), error) {
	kind, rest, _ := strings.Cut(result, " ")
	switch kind {
	case "error", "fail":
	case "blocked":
		reason, address, _ := strings.Cut(rest, " ")
		return func(context.Context, json.RawMessage) (tool.Result, error) {
			return tool.Result{}, fmt.Errorf("%w: %w", tool.ErrNotSent, blocked{reason, address})
		}, nil
	case "repeat":
		times, text, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(times)
		if err != nil {
			return nil, err
		}
		kind, rest = "", strings.Repeat(text, n)
	default:
		kind, rest = "", result
	}
	var count atomic.Int64
	return func(_ context.Context, arguments json.RawMessage) (tool.Result, error) {
		text := strings.NewReplacer("{n}", strconv.FormatInt(count.Add(1), 10), "{args}", string(arguments)).Replace(rest)
		switch kind {
		case "error":
			return tool.Error(text), nil
		case "fail":
			return tool.Result{}, errors.New(text)
		}
		return tool.Text(text), nil
	}, nil
}

// blocked is a refusal of the outbound policy.
type blocked struct{ reason, address string }

func (b blocked) Error() string { return "refused: " + b.reason }

// Blocked implements tool.Blocked.
func (b blocked) Blocked() (reason, address string) { return b.reason, b.address }

// ordered makes calls of one turn that take equally long end in their order.
type ordered struct{ tool.Tool }

// Class says how often a call may be executed.
func (o ordered) Class() tool.Class { return tool.ClassOf(o.Tool) }

// Call implements tool.Tool.
func (o ordered) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	index, err := strconv.Atoi(c.Key[strings.LastIndexByte(c.Key, '.')+1:])
	if err != nil {
		return tool.Result{}, fmt.Errorf("call key %q: %w", c.Key, err)
	}
	time.Sleep(time.Duration(index+1) * time.Microsecond) // virtual
	r, err := o.Tool.Call(ctx, c)
	if o.Definition().Name == builtin.CodeExecute && r.Structured != nil { // as the built-in tool does, whatever the others say
		var v builtin.CodeResult
		if err := json.Unmarshal(r.Structured, &v); err != nil {
			return tool.Result{}, err
		}
		r.Value = v
	}
	return r, err
}

// source is a turnpiketest.Source of ordered tools.
type source struct{ *turnpiketest.Source }

// List implements tool.Source.
func (s source) List(ctx context.Context) ([]tool.Tool, error) {
	tools, err := s.Source.List(ctx)
	for i := range tools {
		tools[i] = ordered{tools[i]}
	}
	return tools, err
}
