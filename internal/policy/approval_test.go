package policy

import "testing"

func TestApprovalAsks(t *testing.T) { // P60
	yes, no := true, false
	misspelt := &Tools{Names: []string{"dellete"}}
	has := func(name string) bool { return name == "read" || name == "delete" || name == "write" }
	read, deletes := &Tools{Names: []string{"read"}}, &Tools{Names: []string{"delete"}}
	for _, c := range []struct {
		name  string
		rule  Approval
		tool  string
		reads bool
		want  bool
	}{
		{"the zero rule", Approval{}, "delete", false, false},
		{"every call", Approval{Rest: true}, "read", true, true},
		{"a named tool", Approval{Always: deletes}, "delete", false, true},
		{"not the others", Approval{Always: deletes}, "read", false, false},
		{"all but a named tool", Approval{Never: read, Rest: true}, "read", false, false},
		{"all but a named tool: another", Approval{Never: read, Rest: true}, "delete", false, true},
		{"all but those that only read", Approval{Never: &Tools{ReadOnly: &yes}, Rest: true}, "read", true, false},
		{"what is not known to only read", Approval{Never: &Tools{ReadOnly: &yes}, Rest: true}, "read", false, true},
		{"what writes", Approval{Always: &Tools{ReadOnly: &no}}, "delete", false, true},
		{"both conditions", Approval{Never: &Tools{Names: []string{"read"}, ReadOnly: &yes}, Rest: true}, "read", false, true},
		{"always is stronger than never", Approval{Always: deletes, Never: deletes}, "delete", false, true},
		{"no conditions select nothing", Approval{Never: &Tools{}, Rest: true}, "read", true, true},
		{"an empty list selects nothing", Approval{Never: &Tools{Names: []string{}}, Rest: true}, "read", true, true},
		{"a misspelt name: another tool", Approval{Always: misspelt}, "delete", false, true},
		{"a misspelt name: one that only reads", Approval{Always: misspelt}, "read", true, false},
		{"a misspelt name: a tool that a rule names", Approval{Always: &Tools{Names: []string{"dellete", "read"}, ReadOnly: &yes}}, "read", false, false},
		{"one right and one misspelt name", Approval{Always: &Tools{Names: []string{"delete", "raed"}}}, "write", false, true},
	} {
		if got := c.rule.Asks(c.tool, c.reads, has); got != c.want {
			t.Errorf("%s: Asks(%q, %t) = %t, want %t", c.name, c.tool, c.reads, got, c.want)
		}
	}
}
