package wire

import (
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/model"
)

// Classify returns what can be done about a failure. Status is 0 if the failure
// came inside an answer and named no status.
func Classify(status int, d Details) model.ErrorClass {
	switch {
	case filtered(d):
		return model.Filtered
	case rejects(status) && tooLong(d):
		return model.TooLong
	case d.has("tool_use_failed"): // Groq: the model wrote no valid call; it may the next time
		return model.Transient
	case d.has("insufficient_quota", "billing_hard_limit_reached", "servicequotaexceeded"): // waiting does not help
		return model.Target
	case rejects(status) && credentials(d):
		return model.Target
	}
	switch status {
	case 0:
		return classifyWords(d)
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusFailedDependency: // Bedrock: the model failed
		return model.Transient
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusGone:
		return model.Target
	}
	switch {
	case status >= 500:
		return model.Transient
	case status >= 400:
		return model.Invalid
	}
	return model.Target // a redirect: the base URL is wrong
}

// classifyWords classifies a failure that has no status.
func classifyWords(d Details) model.ErrorClass {
	switch {
	case d.has("rate_limit", "overloaded", "unavailable", "timeout", "server_error"):
		return model.Transient
	case d.has("invalid_prompt", "image"): // also one that is not found
		return model.Invalid
	case d.has("auth", "permission", "not_found", "api_key", "data_residency"):
		return model.Target
	case d.has("invalid_request", "bad_request", "badrequest", "validation"):
		return model.Invalid
	}
	return model.Transient
}

// rejects reports whether the status means that the request itself is refused.
func rejects(status int) bool {
	switch status {
	case 0, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// has reports whether code or type contain one of the words.
func (d Details) has(words ...string) bool { return containsAny(d.words, words...) }

func filtered(d Details) bool {
	return d.has("content_filter", "content_policy_violation", "responsibleaipolicyviolation", "bio_policy")
}

func credentials(d Details) bool {
	return d.has("model_not_found", "failed_precondition") || wrongKey(d) // Google: no billing, or not in this country
}

// refusesCredential reports whether the provider refuses the key of the request. A
// 403 alone can be about the model or the country.
func refusesCredential(status int, d Details) bool {
	return status == http.StatusUnauthorized || (rejects(status) || status == http.StatusForbidden) && wrongKey(d)
}

func wrongKey(d Details) bool {
	return d.has("invalid_api_key", "api_key_invalid", "authentication", "unrecognizedclient", "invalidsignature", "incompletesignature", "expiredtoken") ||
		containsAny(strings.ToLower(d.message), "incorrect api key", "invalid api key", "api key not valid")
}

// tooLong reports whether the context is too long, by the code, or by the message of
// providers without a code.
func tooLong(d Details) bool {
	return d.has("context_length_exceeded", "exceed_context_size", "context_window_exceeded", "max_prompt_tokens_exceeded") ||
		containsAny(strings.ToLower(d.message),
			"context length", "context window", "context size", "context limit", "model length",
			"maximum prompt length", "prompt is too long", "prompt too long", "input is too long",
			"maximum allowed length", "maximum allowed input length", "range of input length",
			"prompt token count", "model token limit", "too many input tokens", "maximum number of tokens",
			"`max_new_tokens` must be", "`inputs` must have less than", // text-generation-inference
			"reduce the length of the messages")
}

func containsAny(s string, words ...string) bool {
	for _, w := range words {
		if strings.Contains(s, w) {
			return true
		}
	}
	return false
}
