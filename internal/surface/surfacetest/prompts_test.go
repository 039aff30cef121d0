package surfacetest

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// prompt is what one model call was asked, in words.
type prompt struct {
	head  string
	items []string
}

// prompts describes the model calls since the last look. Of a transcript that
// begins like the one before only what is new is shown.
func (st *stage) prompts() string {
	requests := st.script.Requests()
	if st.second != nil {
		requests = append(requests, st.second.Requests()...)
	}
	var b strings.Builder
	for _, r := range requests[st.shown:] {
		p := newPrompt(r)
		fmt.Fprintln(&b, p.head)
		same := shared(st.before.items, p.items)
		if same < len(st.before.items) {
			same = 0 // the past has changed: all of it is worth a look
		}
		if same > 0 {
			fmt.Fprintf(&b, "  … %d as before\n", same)
		}
		for _, it := range p.items[same:] {
			fmt.Fprintln(&b, "  "+it)
		}
		st.before = p
	}
	st.shown = len(requests)
	return b.String()
}

func newPrompt(r model.Request) prompt {
	var names []string
	for _, t := range r.Tools {
		names = append(names, t.Name)
	}
	p := prompt{head: fmt.Sprintf("tools %s, choice %s", cmp.Or(strings.Join(names, " "), "-"), cmp.Or(r.ToolChoice.Mode, "-"))}
	for _, it := range r.Items {
		p.items = append(p.items, describeItem(it))
	}
	return p
}

// describeItem writes an item on one line.
func describeItem(it item.Item) string {
	words := []string{string(it.Role)}
	switch it.Kind {
	case item.ToolCall:
		words = []string{string(it.Kind), it.CallID, it.Name, it.Arguments}
	case item.ToolResult:
		words = []string{string(it.Kind), it.CallID}
	case item.Reasoning:
		words = []string{string(it.Kind)}
	}
	for _, p := range it.Parts {
		if p.Kind != item.Text {
			words = append(words, string(p.Kind))
		}
		words = append(words, toJSON(p.Text))
	}
	return strings.Join(words, " ")
}

// shared counts the items at the beginning that are the same.
func shared(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
