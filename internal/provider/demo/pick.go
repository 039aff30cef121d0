package demo

import (
	"slices"
	"strings"
	"unicode"
)

// turns is how many calls the script makes before it answers.
const turns = 2

// pick chooses the tool to call, and its arguments; false when the model is to answer.
func pick(r *request, said conversation) (name, args string, ok bool) {
	tools := named(r.Tools, r.ToolChoice.allowed...)
	if r.ToolChoice.mode == "" || r.ToolChoice.mode == "auto" {
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
	unused := slices.DeleteFunc(slices.Clone(tools), func(t offered) bool {
		return said.called(t.Function.Name) || harmful(t.Function.Name)
	})
	if len(unused) > 0 && len(said.results) < turns {
		return slices.MinFunc(unused, func(a, b offered) int { return rank(a, said) - rank(b, said) }), true
	}
	// A caller that insists gets a call, whatever is left.
	return tools[0], r.ToolChoice.mode == "required"
}

// rank orders tools, the best first: those that the question names, then those
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
	for _, asked := range plainWords(said.question) {
		if len(asked) > 2 && !slices.Contains([]string{"mcp", "get", "the", "tool", "demo", "and", "for", "with", "from", "what", "how"}, asked) && slices.Contains(its, asked) {
			return order - 10
		}
	}
	return order
}

// harmful reports whether a tool's name says that it changes something, tells
// about the machine or takes long: the script does not choose it by itself.
func harmful(name string) bool {
	bad := []string{
		"approve", "buy", "cancel", "create", "delete", "deploy", "destroy", "disable", "drop", "elicitation", "enable", "env",
		"exec", "execute", "insert", "kill", "long", "merge", "move", "pay", "post", "publish", "push", "put", "remove", "rename",
		"reset", "restart", "revoke", "run", "sampling", "secret", "send", "set", "shell", "stop", "submit", "toggle", "transfer",
		"trigger", "update", "upload", "write",
	}
	return slices.ContainsFunc(parts(name), func(p string) bool { return slices.Contains(bad, p) })
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
