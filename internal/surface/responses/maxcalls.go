package responses

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// decodeMaxToolCalls reads max_tool_calls: the most tool calls that the gateway makes for the
// response; 0 = no limit of the client's. The org's limit applies in addition.
func decodeMaxToolCalls(value json.RawMessage) (int, error) {
	const name = "max_tool_calls"
	if string(value) == "null" {
		return 0, nil
	}
	if !regexp.MustCompile(`^-?[0-9]+$`).Match(value) {
		return 0, fault.New(fault.Invalid, "invalid_type", "%s must be an integer", name).In(name)
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	switch {
	case value[0] == '-' || err == nil && n < 1:
		return 0, fault.New(fault.Invalid, "integer_below_min_value", "%s must be at least 1", name).In(name)
	case err != nil: // too large for an int64
		return math.MaxInt32, nil
	}
	return int(min(n, math.MaxInt32)), nil
}
