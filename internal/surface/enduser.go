package surface

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/money"
)

// maxEndUser is the longest id of an end user that is kept as it is, in bytes. The API allows 64
// characters for safety_identifier.
const maxEndUser = 256

// EndUser returns whom a request names as its end user: in safety_identifier, or else in user, or
// else in metadata.user_id. Of a longer id than maxEndUser it returns a hash. "" = nobody.
func EndUser(members []Member) string {
	var of [3]string
	for _, m := range members {
		switch m.Name {
		case "safety_identifier":
			of[0] = jsonscan.Text(m.Value)
		case "user":
			of[1] = jsonscan.Text(m.Value)
		case "metadata":
			if jsonscan.IsKind(m.Value, '{') {
				of[2] = jsonscan.Text(jsonscan.TrimSpace(jsonscan.Member(m.Value, "user_id")))
			}
		}
	}
	for _, id := range of {
		id = strings.TrimSpace(id)
		if len(id) > maxEndUser {
			sum := sha256.Sum256([]byte(id))
			return "sha256:" + hex.EncodeToString(sum[:])
		}
		if id != "" {
			return id
		}
	}
	return ""
}

// maxCostHeader limits what one request may cost.
const maxCostHeader = "Turnpike-Max-Run-Cost-Usd"

// maxCost returns the limit of the header on the cost of the run, in 10⁻⁹ US dollars; 0 = none.
func maxCost(header http.Header) (int64, error) {
	given := header.Values(maxCostHeader)
	if len(given) == 0 {
		return 0, nil
	}
	text := strings.TrimSpace(given[0])
	if len(given) > 1 {
		return 0, fault.New(fault.Invalid, "invalid_value", "the header turnpike-max-run-cost-usd is given %d times; give it once", len(given)).In("turnpike-max-run-cost-usd")
	}
	limit, err := money.ParseUSD(text)
	if err != nil || limit <= 0 {
		return 0, fault.New(fault.Invalid, "invalid_value", "the header turnpike-max-run-cost-usd must be US dollars above 0, such as 0.05, with at most 9 decimals").
			In("turnpike-max-run-cost-usd")
	}
	return int64(limit), nil
}

// maxTokens returns the output limit of a request that is relayed unchanged, in tokens of all its
// choices for so many prompts; 0 = none.
func maxTokens(members []Member, prompts int64) int64 {
	var most, choices int64 = 0, 1
	for _, m := range members {
		switch m.Name {
		case "max_completion_tokens", "max_output_tokens", "max_tokens":
			most = max(most, countOf(m.Value))
		case "n", "best_of": // if one is repeated, providers differ in which counts
			choices = max(choices, countOf(m.Value))
		}
	}
	choices *= min(max(prompts, 1), 1<<20)
	if most == 0 && choices > 1 {
		most = budget.DefaultOutput
	}
	return min(most, 1<<40/choices) * choices
}

// countOf returns a number from 1 to 2⁴⁰, rounded down, and 0 for any other value.
func countOf(value []byte) int64 {
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n < 1 || n > 1<<40 {
		return 0
	}
	return int64(n)
}
