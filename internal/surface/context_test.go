package surface

import (
	"context"
	"encoding/json"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

type plainModel struct{}

func (plainModel) Stream(context.Context, *model.Request, func(model.Delta) error) (*model.Turn, error) {
	panic("not called")
}

type editingModel struct{ plainModel }

func (editingModel) EditsContext() bool { return true }

// The forms of context_management: what they ask for, and what is refused. // P50
func TestContextManagement(t *testing.T) {
	editing, plain := route.Target{Target: loop.Target{Provider: "claude"}, Client: editingModel{}}, route.Target{Target: loop.Target{Provider: "up"}, Client: plainModel{}}
	both := []route.Target{editing, plain}
	for _, tt := range []struct {
		value   string
		targets []route.Target
		want    Context
		reason  string
		param   string
	}{
		{value: `[{"type":"compaction"}]`, want: Context{Mode: "auto", Listed: true}},
		{value: `[{"type":"compaction","compact_threshold":null}]`, want: Context{Mode: "auto", Listed: true}},
		{value: ` [{"type":"compaction","compact_threshold":2000,"keep":1},{"type":"compaction","compact_threshold":1000}]`, want: Context{Mode: "auto", At: 1000, Listed: true, Dropped: []string{"context_management[0].keep"}}},
		{value: `[{"type":"compaction","compact_threshold":99999999999999999999}]`, want: Context{Mode: "auto", At: math.MaxInt64, Listed: true}},
		{value: `[]`},
		{value: `null`},
		{value: `[7]`, reason: "invalid_type", param: "context_management[0]"},
		{value: `[{"type":"clear"}]`, reason: "invalid_value", param: "context_management[0].type"},
		{value: `[{}]`, reason: "invalid_value", param: "context_management[0].type"},
		{value: `[{"type":"compaction","compact_threshold":999}]`, reason: "integer_below_min_value", param: "context_management[0].compact_threshold"},
		{value: `[{"type":"compaction","compact_threshold":-99999999999999999999}]`, reason: "invalid_type", param: "context_management[0].compact_threshold"},
		{value: `[{"type":"compaction","compact_threshold":2000.5}]`, reason: "invalid_type", param: "context_management[0].compact_threshold"},
		{value: `[{"type":"compaction","compact_threshold":{}}]`, reason: "invalid_type", param: "context_management[0]"},
		{value: `"auto"`, reason: "invalid_type", param: "context_management"},
		{value: `7`, reason: "invalid_type", param: "context_management"},

		{value: `{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":60000}}]}`, targets: both, want: Context{Mode: "auto", At: 60_000}},
		{value: `{"edits":[{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":5}}]}`, targets: both, want: Context{Mode: "prune"}},
		{value: `{"edits":[{"type":"compact_20260112"},{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":30000}}]}`, targets: both, want: Context{Mode: "auto", At: 30_000}},
		{value: `{"edits":[{"type":"clear_thinking_20251015"}]}`, targets: both, want: Context{Mode: "off"}},
		{value: `{"edits":[{"type":"later_20270101"}]}`, targets: []route.Target{editing}, want: Context{Mode: "off"}},
		{value: `{"edits":[{"type":"later_20270101"}]}`, targets: both, reason: "invalid_value", param: "context_management.edits[0].type"},
		{value: `{"edits":[{"type":"compact_20260112","pause_after_compaction":true}]}`, targets: both, reason: "unsupported_value", param: "context_management.edits[0].pause_after_compaction"},
		{value: `{"edits":[{"type":"compact_20260112"}]}`, reason: "unsupported_value", param: "context_management"},
		{value: `{"edits":[]}`, targets: both, reason: "invalid_type", param: "context_management.edits"},
		{value: `{}`, targets: both, reason: "invalid_type", param: "context_management.edits"},
	} {
		for _, relay := range []*run.Relay{nil, {}} {
			req := &run.Request{Input: run.Input{Targets: tt.targets}, Relay: relay}
			if tt.targets == nil {
				req.Targets = []route.Target{plain}
			}
			got, err := ReadContext(req, json.RawMessage(tt.value))
			if f := fault.From(err); err != nil && (f.Reason != tt.reason || f.Param != tt.param || f.Code != fault.Invalid) || (err == nil) != (tt.reason == "") {
				t.Errorf("%s: %v in %s", tt.value, err, f.Param)
				continue
			}
			if err != nil {
				continue
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s: %s", tt.value, diff)
			}
			if string(req.Options.ContextEdits) != map[bool]string{true: "", false: tt.value}[got.Listed || got.Mode == ""] {
				t.Errorf("%s: the edits are %s", tt.value, req.Options.ContextEdits)
			}
			if left := len(req.Targets); got.Mode != "" && !got.Listed && relay != nil && left != 1 || relay == nil && tt.targets != nil && left != len(tt.targets) {
				t.Errorf("%s: %d targets are left", tt.value, left)
			}
		}
	}
}

func FuzzContextManagement(f *testing.F) {
	f.Add(`[{"type":"compaction","compact_threshold":1000}]`)
	f.Add(`{"edits":[{"type":"compact_20260112","trigger":{"type":"input_tokens","value":60000}}]}`)
	f.Fuzz(func(t *testing.T, value string) {
		if !json.Valid([]byte(value)) {
			return
		}
		c, err := ReadContext(&run.Request{Input: run.Input{Targets: []route.Target{{Client: editingModel{}}}}}, json.RawMessage(value))
		if err == nil && c.At < 0 {
			t.Errorf("%s: %+v", value, c)
		}
	})
}
