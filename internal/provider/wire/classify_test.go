package wire

import (
	"net/http"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/model"
)

// Providers word a refusal for the length of the prompt in many ways. Each is recognised, and the limit is read from
// it where it names one. // I04
func TestRefusalsForLength(t *testing.T) {
	for _, tt := range []struct {
		by, message string
		limit       int64
	}{
		{"Anthropic", "prompt is too long: 213462 tokens > 200000 maximum", 200_000},
		{"Anthropic", "input length and `max_tokens` exceed context limit: 187254 + 20000 > 204798, decrease input length", 204_798},
		{"SGLang", "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 9200 tokens", 8192},
		{"SGLang", "The input (9000 tokens) is longer than the model's context length (8192 tokens).", 8192},
		{"SGLang", "Input length (9000 tokens) exceeds the maximum allowed length (8186 tokens). Use a shorter input.", 8186},
		{"vLLM", "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 4096},
		{"Copilot", "prompt token count of 152434 exceeds the limit of 128000", 128_000},
		{"Moonshot", "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)", 262_144},
		{"LM Studio", "tokens to keep from the initial prompt is greater than the context length (n_keep: 13055>= n_ctx: 4096).", 4096},
		{"LM Studio", "However, the model is loaded with context length of only 7866 tokens, which is not enough.", 7866},
		{"LM Studio", "Context size has been exceeded.", 0},
		{"TGI", "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 4096},
		{"TGI", "Input validation error: `inputs` must have less than 1024 tokens. Given: 1106", 1024},
		{"Mistral", "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", 32_768},
		{"DashScope", "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]", 30_720},
		{"xAI", "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072},
	} {
		d := Details{message: tt.message}
		for _, status := range []int{0, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity} {
			if got := Classify(status, d); got != model.TooLong {
				t.Errorf("%s, status %d, %q: %s", tt.by, status, tt.message, got)
			}
		}
		if got := Classify(http.StatusTooManyRequests, d); got != model.Transient {
			t.Errorf("%s with status 429: %s", tt.by, got)
		}
		if got := window.FromError(tt.message); got != tt.limit {
			t.Errorf("%s, %q: the limit is read as %d, want %d", tt.by, tt.message, got, tt.limit)
		}
	}
	for _, other := range []string{
		"max_tokens must be less than or equal to 16384, the maximum value for max_tokens",
		"Invalid 'user': string too long. Expected a string with maximum length 64",
		"Too many tokens, please wait before trying again.",
		"temperature must be <= 2",
	} {
		if got := Classify(http.StatusBadRequest, Details{message: other}); got != model.Invalid {
			t.Errorf("%q: %s", other, got)
		}
	}
}
