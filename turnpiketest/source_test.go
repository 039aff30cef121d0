package turnpiketest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestAToolDoesWhatItsFieldsSay(t *testing.T) {
	oops := errors.New("oops")
	for name, row := range map[string]struct {
		tool    turnpiketest.Tool
		want    string
		isError bool
		err     error
		took    time.Duration
	}{
		"nothing":             {},
		"a result":            {tool: turnpiketest.Tool{Result: "a"}, want: "a"},
		"a result later":      {tool: turnpiketest.Tool{Result: "a", After: time.Second}, want: "a", took: time.Second},
		"an error result":     {tool: turnpiketest.Tool{Result: "a", IsError: true}, want: "a", isError: true},
		"a failure":           {tool: turnpiketest.Tool{Err: oops, Result: "a"}, err: oops},
		"a death":             {tool: turnpiketest.Tool{Trouble: turnpiketest.Die}, err: io.ErrUnexpectedEOF},
		"a hang":              {tool: turnpiketest.Tool{Trouble: turnpiketest.Hang}, err: context.DeadlineExceeded, took: time.Minute},
		"longer than allowed": {tool: turnpiketest.Tool{After: time.Hour}, err: context.DeadlineExceeded, took: time.Minute},
		"an answer": {tool: turnpiketest.Tool{Answer: func(_ context.Context, a json.RawMessage) (tool.Result, error) {
			return tool.Error(string(a)), nil
		}}, want: "{}", isError: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				row.tool.Name = "x"
				s := turnpiketest.NewSource(row.tool)
				r, err := named(t, s, "x").Call(ctx, tool.Call{Key: "0.0", Arguments: json.RawMessage("{}")})
				if textOf(r) != row.want || r.IsError != row.isError || !errors.Is(err, row.err) {
					t.Errorf("%+v %v", r, err)
				}
				c := s.Calls()
				if len(c) != 1 || c[0].End.Sub(c[0].Start) != row.took || c[0].Key != "0.0" || string(c[0].Arguments) != "{}" || !errors.Is(c[0].Err, row.err) {
					t.Errorf("ledger %+v, want %v", c, row.took)
				}
			})
		})
	}
}

func TestAGateOpensForOneCallOrForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{}, 1)
		gate <- struct{}{}
		x := named(t, turnpiketest.NewSource(turnpiketest.Tool{Name: "x", Gate: gate, Result: "a"}), "x")
		call := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := x.Call(ctx, tool.Call{})
			return err
		}
		if err := call(); err != nil {
			t.Error(err)
		}
		if err := call(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second call passed: %v", err)
		}
		close(gate)
		if err := errors.Join(call(), call()); err != nil {
			t.Error(err)
		}
	})
}

func TestASourceFailsDelaysAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := turnpiketest.NewSource(turnpiketest.Tool{Name: "x", Class: tool.Read})
		if c := tool.ClassOf(named(t, s, "x")); c != tool.Read {
			t.Errorf("class %s", c)
		}
		down := errors.New("down")
		s.Fail(down)
		if _, err := s.List(t.Context()); !errors.Is(err, down) {
			t.Error(err)
		}
		s.Fail(nil)
		s.Delay(time.Hour)
		s.SetTools(turnpiketest.Tool{Name: "y"})
		begin := time.Now()
		if named(t, s, "y"); time.Since(begin) != time.Hour || s.Lists() != 3 {
			t.Errorf("%v, %d lists", time.Since(begin), s.Lists())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.List(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := s.Await(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}
