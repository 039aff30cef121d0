package window

import (
	"regexp"
	"strconv"
	"strings"
)

// Size is what a model takes, in tokens. The zero value means that it is not known: then only a refusal
// of the provider says that a prompt is too long.
type Size struct {
	Window int64 `json:"window,omitempty"` // of the prompt and the output together
	Input  int64 `json:"input,omitempty"`  // the most that a prompt may have; 0 = Window alone limits it
}

// Known reports whether the size is known.
func (s Size) Known() bool { return s.Window > 0 || s.Input > 0 }

// defaultOutput is what is reserved for the output of a call whose caller has set no limit, in tokens.
const defaultOutput = 8_192

// Threshold returns the size of a prompt, in tokens, above which it is compacted: the window without
// the reserved output and a margin for what the estimate does not see. asked is the caller's limit on
// the output; 0 = none. The output gets at most half of the window, so that the threshold of a small
// window is positive too. It is 0 if the size is not known.
func (s Size) Threshold(asked int64) int64 {
	if !s.Known() {
		return 0
	}
	window := s.Window
	if window <= 0 {
		window = s.Input
	}
	room := window - Reserved(window, asked)
	if s.Input > 0 {
		room = min(room, s.Input)
	}
	return max(room-room/20, 1)
}

// Reserved returns how many tokens of a window are reserved for the output.
func Reserved(window, asked int64) int64 {
	if asked <= 0 {
		asked = min(defaultOutput, window/4)
	}
	return min(asked, window/2)
}

// known is a row of the built-in table.
type known struct {
	names []string
	size  Size
}

// table lists the windows of models of OpenAI, Anthropic and Gemini, also where Bedrock has them. It was written by
// hand on 2026-11-26 from model pages of the providers and public lists of models. A model that neither was
// found for is not in it: its window is unknown. A row also holds for dated
// versions of its models. A model that is offered with a larger window only on request has the smaller one.
var table = []known{
	{[]string{
		"gpt-6.1-terra", "gpt-6-astra", "gpt-6-sol", "gpt-6-luna",
	}, Size{1_050_000, 922_000}},
	{[]string{
		"gpt-5.1", "gpt-5.1-codex", "gpt-5.1-codex-mini",
		"gpt-5", "gpt-5-codex", "gpt-5-mini", "gpt-5-nano", "gpt-5-pro",
	}, Size{400_000, 272_000}},
	{[]string{"gpt-4.1", "gpt-4.1-mini", "gpt-4.1-nano"}, Size{Window: 1_047_576}},
	{[]string{"gpt-4o", "gpt-4o-mini"}, Size{Window: 128_000}},
	{[]string{"o3", "o3-mini", "o4-mini"}, Size{Window: 200_000}},

	{[]string{
		"claude-fable-5-1", "claude-fable-5", "claude-opus-5-5", "claude-opus-5", "claude-opus-4-8", "claude-opus-4-7",
		"claude-sonnet-5-5", "claude-sonnet-5", "claude-haiku-5-5",
	}, Size{Window: 1_000_000}},
	{[]string{
		"claude-opus-4-5", "claude-opus-4-1", "claude-opus-4-0", "claude-opus-4",
		"claude-sonnet-4-5", "claude-sonnet-4-0", "claude-sonnet-4", "claude-3-7-sonnet", "claude-3-5-sonnet",
		"claude-haiku-4-5", "claude-3-5-haiku", "claude-3-haiku",
	}, Size{Window: 200_000}},

	{[]string{
		"gemini-3.8-flash", "gemini-3.7-flash", "gemini-3.6-flash", "gemini-3.5-flash", "gemini-3.5-flash-lite",
		"gemini-3.1-pro-preview", "gemini-3.1-flash-lite", "gemini-3-pro-preview", "gemini-3-flash-preview",
		"gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-2.0-flash", "gemini-2.0-flash-001",
	}, Size{Window: 1_048_576}},
}

// families are what names in the table begin with. Bedrock and others put a region and a vendor before
// them, such as in us.anthropic.claude-sonnet-5-v1:0.
var families = []string{"anthropic.claude-", "anthropic/claude-", "openai/gpt-", "google/gemini-"}

// version matches what may follow the name of a model: a date, and what Bedrock and Vertex append.
var version = regexp.MustCompile(`^(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}))?(?:-v\d+(?::\d+(?::\d+k)?)?|@default)?$`)

// Of returns the size of a model from the built-in table, or a Size that is not known. model is the
// provider's name for it.
func Of(model string) Size {
	for _, f := range families {
		if at := strings.LastIndex(model, f); at >= 0 {
			model = model[at+strings.IndexAny(f, "./")+1:]
			break
		}
	}
	for _, row := range table {
		for _, name := range row.names {
			if rest, ok := strings.CutPrefix(model, name); ok && version.MatchString(rest) {
				return row.size
			}
		}
	}
	return Size{}
}

// The bounds of a limit that an error is believed to name, in tokens.
const (
	minLimit = 256
	maxLimit = maxTokens
)

// tooLong matches the limit in the messages of providers and of engines.
var tooLong = regexp.MustCompile(`(?i)(?:` +
	`context limit: *\d+ *\+ *\d+ *>|` +
	`tokens >|` +
	`(?:context|model|prompt|allowed) length(?: is| of)?(?: only)?|` +
	`n_ctx|` +
	`range of input length should be \[1,|` +
	`maximum number of tokens allowed|` +
	`max(?:imum)? (?:input|prompt) tokens(?: is)?|` +
	`exceeds the limit of|` +
	`model token limit|` +
	"`max_new_tokens` must be <=|" +
	"`inputs` must have less than|" +
	`too large for model with|` +
	`available context size|` +
	`context window of` +
	`)[ :(]{0,3}(\d[\d,]*)`)

// FromError returns the limit that a provider names in its refusal of a prompt, in tokens; 0 = it names none.
func FromError(message string) int64 {
	m := tooLong.FindStringSubmatch(message)
	if m == nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
	if err != nil || n < minLimit || n > maxLimit {
		return 0
	}
	return n
}
