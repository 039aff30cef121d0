// Package claude knows what Claude models take, whichever API reaches them: the rules
// of each version, the tokens of thinking for each effort, and the part of JSON Schema
// that is enforced.
package claude

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// Rules are what a model takes and what it refuses with 400. They follow from its
// version, so that they hold for the next model of a family too:
// https://platform.claude.com/docs/en/about-claude/models/overview and the migration
// guides there.
type Rules struct {
	// Adaptive models decide by themselves how much they think, from Claude 4.6 on.
	// Earlier ones take a number of tokens.
	Adaptive bool
	// ThinksByDefault is true for models that think unless they are told not to:
	// from Claude 5 on.
	ThinksByDefault bool
	// Off is the type of thinking that switches it off: "" means that it is off
	// where the request says nothing of it.
	Off string
	// AlwaysThinks is true for models that cannot be told not to think.
	AlwaysThinks bool
	// NoSampling is true for models without temperature, top_p and top_k: from
	// Claude 4.7 on.
	NoSampling bool
	// Xhigh is true for models with the effort xhigh: from Claude 4.7 on.
	Xhigh bool
	// NoForcedCall is true for models that refuse a forced tool call: from Claude 5.5
	// on, except Haiku.
	NoForcedCall bool
	// NoSchema is true for models without structured outputs: those before Claude 4.5.
	NoSchema bool
	// StrictTools is true for models that hold the arguments of calls to a schema.
	StrictTools bool
}

// modelVersion finds the family and the version in names such as
// claude-opus-4-6, claude-3-7-sonnet-latest and anthropic/claude-4.6-opus.
var modelVersion = regexp.MustCompile(`claude-((?:[a-z]+-)*)(\d+)(?:[-.](\d{1,2}))?(?:[^0-9]([a-z]*)|$)`)

// RulesOf returns the rules of a model. Nothing is known of names of other forms,
// which compatible providers have: those models take a number of tokens of thinking
// and everything else.
func RulesOf(name string) Rules {
	m := modelVersion.FindStringSubmatch(name)
	if m == nil {
		return Rules{Off: "disabled"}
	}
	family := strings.TrimSuffix(m[1], "-")
	if family == "" { // otherwise what comes after the version is a date, or "latest"
		family = m[4]
	}
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	since := func(x, y int) bool { return major > x || major == x && minor >= y }
	largest := slices.Contains([]string{"fable", "mythos"}, family)
	r := Rules{
		Adaptive: since(4, 6), ThinksByDefault: since(5, 0), NoSampling: since(4, 7), Xhigh: since(4, 7), NoSchema: !since(4, 5), StrictTools: since(4, 5),
		AlwaysThinks: largest || family == "opus" && since(5, 5),
		NoForcedCall: largest && since(5, 1) || family != "haiku" && since(5, 5),
	}
	switch {
	case !r.ThinksByDefault || r.AlwaysThinks:
	case family == "sonnet" && since(5, 5):
		r.Off = "between_tools" // it thinks only between calls
	default:
		r.Off = "disabled"
	}
	return r
}

// MinBudget is the lowest number of tokens of thinking that the models take.
const MinBudget = 1024

// Budget returns the number of tokens of thinking for an effort, for models that take a
// number.
func Budget(effort string) int {
	switch effort {
	case "minimal":
		return MinBudget
	case "low":
		return 2048
	case "medium":
		return 8192
	case "high":
		return 16_384
	}
	return 32_768 // xhigh, max
}

// propertyName is what the models take as the name of an argument.
var propertyName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)

// TakesNames reports whether the models take the names of a tool's arguments. One that
// they refuse would fail every request with the tool.
func TakesNames(schema []byte) bool {
	for name := range jsonscan.Members(jsonscan.TrimSpace(jsonscan.Member(schema, "properties"))) {
		if !propertyName.Match(name) {
			return false
		}
	}
	return true
}

// Outdated reports whether a provider's error says that the model refuses thinking of its
// own because something before it has changed: the system text, the tools or a message. It notes so in
// the log: the request is to be sent again without that thinking.
// Claude 5.5 and Claude Fable 5.1 are the first models that do:
// https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks.
func Outdated(ctx context.Context, log *slog.Logger, err error) bool {
	refused, is := errors.AsType[*model.Error](err)
	if !is || refused.Status != http.StatusBadRequest || !strings.Contains(refused.Message, "bound to a different conversation") {
		return false
	}
	const said = "the provider refuses its earlier reasoning, because the prompt before it has changed; the request is sent again without it"
	log.WarnContext(ctx, said, "error", err)
	return true
}
