package conversation

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/item"
)

// The model sees the last compaction of a conversation whose parts are all there, and what came after it.
func TestACompactionHolds(t *testing.T) {
	turn := func(id, run, asked, answer string) part {
		said := item.NewText(item.Assistant, answer)
		said.Turn = 1
		return part{id, &journal.Conversation{RunID: run, Items: []item.Item{item.NewText(item.User, asked), said}}}
	}
	compacted := func(p part, own int, after ...part) part {
		c := *p.Conversation
		seen := []item.Item{item.NewText(item.User, "summary by "+p.id)}
		c.Compaction = &journal.Compaction{After: placeBehind(after, additions(after, nil)), Own: own, Items: seen}
		return part{p.id, &c}
	}
	a, b, c := turn("a", "run_a", "qa", "aa"), turn("b", "run_b", "qb", "ab"), turn("c", "run_c", "qc", "ac")
	again := turn("a2", "", "qa", "aa") // what is left of a part when an item was deleted
	added := part{"x", &journal.Conversation{Items: []item.Item{item.NewText(item.User, "added")}}}
	failed, otherwise := turn("b", "run_b", "qb", ""), turn("a", "run_b", "qa", "")
	for name, tt := range map[string]struct {
		found []part
		want  string
	}{
		"none":                         {[]part{a, b}, "qa aa qb ab"},
		"of what is in front":          {[]part{a, compacted(b, 0, a), c}, "summary by b, qb ab qc ac"},
		"with the question":            {[]part{a, compacted(b, 1, a), c}, "summary by b, ab qc ac"},
		"with all of the turn":         {[]part{a, compacted(b, 2, a)}, "summary by b,"},
		"the last one counts":          {[]part{a, compacted(b, 0, a), compacted(c, 0, a, b)}, "summary by c, qc ac"},
		"of the first turn":            {[]part{compacted(a, 1), b}, "summary by a, aa qb ab"},
		"a part was deleted":           {[]part{b, compacted(c, 0, a, b)}, "qb ab qc ac"},
		"its run was rewound":          {[]part{a}, "qa aa"},
		"a run after it was rewound":   {[]part{a, compacted(b, 0, a)}, "summary by b, qb ab"},
		"of runs that were rewound":    {[]part{a, compacted(c, 0, a, b)}, "qa aa qc ac"},
		"a part was changed":           {[]part{again, b, compacted(c, 0, a, b)}, "qa aa qb ab qc ac"},
		"a part has ended otherwise":   {[]part{otherwise, b, compacted(c, 0, a, b)}, "qb ab qc ac"},
		"nothing may be hidden":        {[]part{a, compacted(b, 0, a)}, "qa aa qb ab"},
		"items came meanwhile":         {[]part{a, added, compacted(b, 0, a)}, "summary by b, added qb ab"},
		"they came behind a question":  {[]part{a, added, compacted(b, 1, a)}, "qa aa added qb ab"},
		"its turn has failed":          {[]part{a, compacted(failed, 0, a), c}, "summary by b, qc ac"},
		"it has failed with the cause": {[]part{a, compacted(failed, 1, a), c}, "qa aa qc ac"},
	} {
		adds := additions(tt.found, map[string]event.Reason{"run_b": event.ModelError})
		var all []item.Item
		for _, one := range adds {
			all = append(all, one.Items...)
		}
		var got []string
		sees := SeesSummaries
		if name == "nothing may be hidden" {
			sees = SeesAll
		}
		if items, ok := seen(tt.found, adds, sees); ok {
			all = items
		}
		for _, it := range all {
			text := it.Text()
			if strings.HasPrefix(text, "summary") {
				text += ","
			}
			got = append(got, text)
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: the model sees %q, want %q", name, got, tt.want)
		}
	}
}
