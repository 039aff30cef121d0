package responses

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// B08: the values that are accepted, and the errors of the others.
func TestMaxToolCalls(t *testing.T) {
	for text, want := range map[string]struct {
		n      int
		reason string
	}{
		"null": {0, ""}, "1": {1, ""}, "10": {10, ""}, "2147483648": {math.MaxInt32, ""}, "99999999999999999999": {math.MaxInt32, ""},
		"0": {0, "integer_below_min_value"}, "-1": {0, "integer_below_min_value"}, "-99999999999999999999": {0, "integer_below_min_value"},
		`"2"`: {0, "invalid_type"}, "2.5": {0, "invalid_type"}, "true": {0, "invalid_type"}, "[]": {0, "invalid_type"}, "1e2": {0, "invalid_type"},
	} {
		n, err := decodeMaxToolCalls(json.RawMessage(text))
		if n != want.n || (err != nil) != (want.reason != "") {
			t.Errorf("%s: %d %v", text, n, err)
			continue
		}
		if f := fault.From(err); err != nil && (f.Reason != want.reason || f.Param != "max_tool_calls" || f.Code != fault.Invalid) {
			t.Errorf("%s: %+v", text, f)
		}
	}
}
