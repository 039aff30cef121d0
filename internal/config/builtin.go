package config

import (
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// builtins is a list of built-in tools, which the management API reads and writes as a whole.
type builtins struct{ objects[org.BuiltinTool] }

func builtinList(into *[]org.BuiltinTool) builtins {
	return builtins{objects[org.BuiltinTool]{into, builtinKeys}}
}

// builtinKeys are the settings of a built-in tool.
func builtinKeys(t *org.BuiltinTool) []key {
	return []key{
		{name: "name", value: word(&t.Name, "", builtin.Names()...), required: true, doc: "Name of the tool, which the model sees."},
		{name: "enabled", value: inverted(&t.Disabled), doc: "false: the tool is not offered."},
		{name: "require_approval", value: unsetWord(word(&t.RequireApproval, "", org.ApprovalNever, org.ApprovalAlways).or("always for database_write, else never")),
			doc: "always: each call waits until a person approves it."},
		{name: "hosted", value: boolean(&t.Hosted, false), doc: "Only for web_search. true: requests that ask for the provider's hosted tool web_search get this tool: with it in tools of /v1/responses, or with web_search_options of /v1/chat/completions."},
		{name: "price_usd", value: price(&t.Price), doc: "What a call costs, in US dollars. It counts in max_run_cost_usd and in budgets."},
		{name: "max_uses", value: integer(&t.MaxUses, 0, 0, 10_000), doc: "How often a run may call the tool. 0: no limit. Further calls are answered with an error that the model reads. A request can only lower it."},
	}
}

func (b builtins) json() any {
	all := make([]Settings, len(*b.into))
	for i := range *b.into {
		all[i] = settingsOf(b.keys(&(*b.into)[i]))
	}
	return all
}

func (b builtins) shown() string {
	var all []string
	for _, one := range *b.into {
		text := one.Name
		if one.Disabled {
			text += " disabled"
		}
		if one.RequireApproval != "" {
			text += " require_approval " + one.RequireApproval
		}
		if one.Hosted {
			text += " hosted"
		}
		if one.Price != nil {
			text += " " + money.Nano(*one.Price).String() + " USD"
		}
		if one.MaxUses > 0 {
			text += fmt.Sprintf(" max_uses %d", one.MaxUses)
		}
		all = append(all, text)
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// checkBuiltins compares the built-in tools of an org with each other.
func (d *decoder) checkBuiltins(path string, all []org.BuiltinTool) {
	unique(d, all, path+"[%d].name", func(t org.BuiltinTool) string { return t.Name })
	for i, t := range all {
		if t.Hosted && t.Name != builtin.WebSearch {
			d.failPath(fmt.Sprintf("%s[%d].hosted", path, i), "is only for web_search; remove it")
		}
	}
}
