package demo

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// turns is how many calls the script makes before it answers, if the question writes none out.
const turns = 2

// pick chooses the tool to call, and its arguments; false when the model is to answer.
func pick(r *request, said conversation) (name, args string, ok bool) {
	tools := named(r.Tools, r.ToolChoice.allowed...)
	if r.ToolChoice.mode == "" || r.ToolChoice.mode == "auto" {
		if orders := ordersIn(said.question, tools); len(orders) > 0 {
			if len(said.results) >= len(orders) {
				return "", "", false
			}
			next := orders[len(said.results)]
			return next.tool, next.arguments, true
		}
		if name, args, asks := builtinCall(tools, said); asks {
			return name, args, name != ""
		}
	}
	t, ok := pickAny(r, tools, said)
	return t.Function.Name, arguments(t.Function.Parameters, said), ok
}

// pickAny chooses one of the tools; false when the model is to answer.
func pickAny(r *request, tools []offered, said conversation) (offered, bool) {
	if len(tools) == 0 || r.ToolChoice.mode == "none" {
		return offered{}, false
	}
	if r.ToolChoice.mode == "function" {
		return named(tools, r.ToolChoice.name)[0], true
	}
	usable := slices.DeleteFunc(slices.Clone(tools), func(t offered) bool {
		return said.called(t.Function.Name) || t.namedAt(said.question) < 0 && !t.isHarmless()
	})
	if len(usable) > 0 && len(said.results) < turns {
		return slices.MinFunc(usable, func(a, b offered) int { return rank(a, said) - rank(b, said) }), true
	}
	// A caller that insists gets a call, whatever is left.
	return tools[0], r.ToolChoice.mode == "required"
}

// order is a call that the question writes out.
type order struct{ tool, arguments string }

// ordersIn returns the calls that a text writes out, in its order: "use TOOL with {…}", or call instead of use. TOOL is the
// name of an offered tool, also without the prefix of its server.
func ordersIn(text string, tools []offered) (all []order) {
	for _, m := range regexp.MustCompile(`(?i)\b(?:use|call)\s+([\w.:-]+)\s+with\s+\{`).FindAllStringSubmatchIndex(text, -1) {
		var arguments json.RawMessage
		if json.NewDecoder(strings.NewReader(text[m[1]-1:])).Decode(&arguments) != nil {
			continue
		}
		name := text[m[2]:m[3]]
		i := slices.IndexFunc(tools, func(t offered) bool {
			return t.Function.Name == name || strings.HasSuffix(t.Function.Name, "__"+name)
		})
		if i >= 0 {
			all = append(all, order{tools[i].Function.Name, string(arguments)})
		}
	}
	return all
}

// namedAt returns where a text names the tool, as the number of a word; -1 = it does not. It contains the tool's name, or each
// of its words: "add a note" names add_note. Words that say only that a tool reads may be missing.
func (t offered) namedAt(text string) int {
	name := t.Function.Name
	if i := strings.LastIndex(name, "__"); i >= 0 {
		name = name[i+2:] // without the prefix of its server
	}
	if before, _, found := strings.Cut(text, name); found {
		return len(plainWords(before))
	}
	reads := []string{"fetch", "find", "get", "list", "lookup", "read", "search", "show"}
	words := parts(name)
	if telling := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return slices.Contains(reads, w) }); len(telling) > 0 {
		words = telling
	}
	in := plainWords(text)
	if len(words) == 0 || slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(in, w) }) {
		return -1
	}
	return slices.Index(in, words[0])
}

// isHarmless reports whether a tool's source says that it only reads, and its name does not say that it shows secrets or
// takes long.
func (t offered) isHarmless() bool {
	a := t.Function.Annotations
	return a.ReadOnlyHint && !slices.ContainsFunc(parts(t.Function.Name), func(w string) bool {
		return slices.Contains([]string{"env", "long", "secret", "secrets"}, w)
	})
}

// rank orders tools, the best first: those that the question names, in its order, then those
// that make a good demonstration, then the others in the order of the offer.
func rank(t offered, said conversation) int {
	its := parts(t.Function.Name)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(its, w) })
	}
	order := 4
	switch {
	case has("weather"):
		order = 0
	case has("convert"):
		order = 1
	case has("add", "sum"):
		order = 2
	case has("echo"):
		order = 3
	}
	if at := t.namedAt(said.question); at >= 0 {
		return at - len(said.question) // before the others
	}
	return order
}

// parts splits a tool's name into its words: getSum, get-sum and
// mcp__calc__get_sum all hold "sum".
func parts(name string) []string {
	var b strings.Builder
	lower := false
	for _, r := range name {
		if lower && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		lower = unicode.IsLower(r)
		b.WriteRune(r)
	}
	return plainWords(b.String())
}

func plainWords(s string) []string {
	return strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}
