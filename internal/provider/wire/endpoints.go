package wire

import (
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// EndpointUsage reads the usage object of an answer of [model.DialectEndpoints]. Its members have
// the names of chat completions or those of responses.
func EndpointUsage(object []byte) model.Usage {
	n := func(names ...string) (most int64) {
		for _, name := range names {
			most = max(most, jsonscan.Number(jsonscan.Member(object, name), 0))
		}
		return min(most, MaxUsage)
	}
	u := model.Usage{Input: n("prompt_tokens", "input_tokens"), Output: n("completion_tokens", "output_tokens"), Total: n("total_tokens")}
	u.Total = max(u.Total, u.Input+u.Output)
	return u
}
