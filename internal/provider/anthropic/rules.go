package anthropic

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// rules are what a model takes and what it refuses with 400. They follow from its
// version, so that they hold for the next model of a family too:
// https://platform.claude.com/docs/en/about-claude/models/overview and the migration
// guides there.
type rules struct {
	// adaptive models decide by themselves how much they think, from Claude 4.6 on.
	// Earlier ones take a number of tokens.
	adaptive bool
	// thinksByDefault is true for models that think unless they are told not to:
	// from Claude 5 on.
	thinksByDefault bool
	// off is the type of thinking that switches it off: "" means that it is off
	// where the request says nothing of it.
	off string
	// alwaysThinks is true for models that cannot be told not to think.
	alwaysThinks bool
	// noSampling is true for models without temperature, top_p and top_k: from
	// Claude 4.7 on.
	noSampling bool
	// xhigh is true for models with the effort xhigh: from Claude 4.7 on.
	xhigh bool
	// noForcedCall is true for models that refuse a forced tool call: from Claude 5.5
	// on, except Haiku.
	noForcedCall bool
	// noSchema is true for models without structured outputs: those before Claude 4.5.
	noSchema bool
	// strictTools is true for models that hold the arguments of calls to a schema.
	strictTools bool
}

// modelVersion finds the family and the version in names such as
// claude-opus-4-6, claude-3-7-sonnet-latest and anthropic/claude-4.6-opus.
var modelVersion = regexp.MustCompile(`claude-((?:[a-z]+-)*)(\d+)(?:[-.](\d{1,2}))?(?:[^0-9]([a-z]*)|$)`)

// rulesOf returns the rules of a model. Nothing is known of names of other forms,
// which compatible providers have: those models take a number of tokens of thinking
// and everything else.
func rulesOf(name string) rules {
	m := modelVersion.FindStringSubmatch(name)
	if m == nil {
		return rules{off: "disabled"}
	}
	family := strings.TrimSuffix(m[1], "-") + m[4]
	major, _ := strconv.Atoi(m[2])
	minor, _ := strconv.Atoi(m[3])
	since := func(x, y int) bool { return major > x || major == x && minor >= y }
	largest := slices.Contains([]string{"fable", "mythos"}, family)
	r := rules{
		adaptive: since(4, 6), thinksByDefault: since(5, 0), noSampling: since(4, 7), xhigh: since(4, 7), noSchema: !since(4, 5), strictTools: since(4, 5),
		alwaysThinks: largest || family == "opus" && since(5, 5),
		noForcedCall: largest && since(5, 1) || family != "haiku" && since(5, 5),
	}
	switch {
	case !r.thinksByDefault || r.alwaysThinks:
	case family == "sonnet" && since(5, 5):
		r.off = "between_tools" // it thinks only between calls
	default:
		r.off = "disabled"
	}
	return r
}
