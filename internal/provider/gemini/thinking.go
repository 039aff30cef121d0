package gemini

import (
	"regexp"
	"strconv"
	"strings"
)

type thinkingConfig struct {
	IncludeThoughts bool   `json:"includeThoughts,omitempty"`
	ThinkingBudget  *int   `json:"thinkingBudget,omitempty"`
	ThinkingLevel   string `json:"thinkingLevel,omitempty"`
}

// rules are what a model takes and what it refuses with 400. They follow from its
// version, so that they hold for later models of a family too:
// https://ai.google.dev/gemini-api/docs/thinking and
// https://ai.google.dev/gemini-api/docs/thought-signatures.
type rules struct {
	// levels are the levels of thinking, from Gemini 3 on; nil = the model takes a
	// number of tokens, or does not think.
	levels []string
	// most is the highest number of tokens of thinking; 0 = the model takes none.
	most int
	// canStop is true for models that can be told not to think.
	canStop bool
	// signed is true for models that refuse calls of the current turn without their
	// signature: from Gemini 3 on.
	signed bool
	// media is true for models that take images and files in the result of a call:
	// from Gemini 3 on.
	media bool
	// formatWithTools is true for models that take a form of the answer together with
	// functions: from Gemini 3 on.
	formatWithTools bool
}

// modelVersion finds the version in names such as gemini-2.5-pro and
// models/gemini-3-flash-preview.
var modelVersion = regexp.MustCompile(`gemini-(\d+)(?:\.(\d+))?`)

// rulesOf returns the rules of a model. Names without a version, such as
// gemini-flash-latest, are the newest models.
func rulesOf(name string) rules {
	major, minor := 4, 0
	if m := modelVersion.FindStringSubmatch(name); m != nil {
		major, _ = strconv.Atoi(m[1])
		minor, _ = strconv.Atoi(m[2])
	} else if strings.Contains(name, "gemma") {
		major = 0
	}
	pro := strings.Contains(name, "-pro")
	switch {
	case major >= 3:
		r := rules{levels: []string{"minimal", "low", "medium", "high"}, signed: true, media: true, formatWithTools: true}
		switch {
		case pro && major == 3 && minor == 0:
			r.levels = []string{"low", "high"}
		case pro:
			r.levels = r.levels[1:]
		}
		return r
	case major == 2 && minor >= 5 && pro:
		return rules{most: 32_768}
	case major == 2 && minor >= 5:
		return rules{most: 24_576, canStop: true}
	}
	return rules{}
}

// budget is the number of tokens of thinking for each effort, for models that take a
// number. They are those of the provider's own API for OpenAI's clients:
// https://ai.google.dev/gemini-api/docs/openai.
func budget(effort string, most int) int {
	switch effort {
	case "minimal", "low":
		return 1024
	case "medium":
		return 8192
	case "high":
		return 24_576
	}
	return most // xhigh, max
}

// leastBudget is what models take that always think.
const leastBudget = 128

// think sets how much the model thinks as the effort says, and reports whether it
// could. Thoughts can be read where the client asks for thinking.
func (t *translation) think() bool {
	effort := t.req.Effort
	switch effort {
	case "":
		return true
	case "none":
		return t.thinkNot()
	case "minimal", "low", "medium", "high", "xhigh", "max":
	default:
		return false
	}
	switch {
	case t.rules.levels != nil:
		level := levelFor(effort, t.rules.levels)
		t.config.ThinkingConfig = &thinkingConfig{IncludeThoughts: true, ThinkingLevel: level}
		return level == effort || effort == "minimal"
	case t.rules.most > 0:
		tokens := budget(effort, t.rules.most)
		t.config.ThinkingConfig = &thinkingConfig{IncludeThoughts: true, ThinkingBudget: &tokens}
		return true
	}
	return false
}

// thinkNot switches thinking off, and reports whether it could.
func (t *translation) thinkNot() bool {
	tokens := 0
	switch {
	case t.rules.levels != nil:
		t.config.ThinkingConfig = &thinkingConfig{ThinkingLevel: t.rules.levels[0]} // the least that there is
		return false
	case t.rules.canStop:
		t.config.ThinkingConfig = &thinkingConfig{ThinkingBudget: &tokens}
	case t.rules.most > 0:
		tokens = leastBudget
		t.config.ThinkingConfig = &thinkingConfig{ThinkingBudget: &tokens}
		return false
	}
	return true
}

// levelFor returns the level for an effort: the next higher one that there is, or the
// highest.
func levelFor(effort string, levels []string) string {
	order := []string{"minimal", "low", "medium", "high"}
	for i, name := range order {
		if name != effort {
			continue
		}
		for _, higher := range order[i:] {
			for _, level := range levels {
				if level == higher {
					return level
				}
			}
		}
	}
	return levels[len(levels)-1]
}
