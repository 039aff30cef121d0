package loop

import (
	"fmt"
	"slices"
)

// limits reports whether the limit is about the call.
func (u ToolUses) limits(c *Call) bool {
	return c.Prepared != nil && c.Prepared.Server == u.Server && c.Prepared.Tool == u.Tool
}

// countUse returns the numbers of calls that count in MaxUses, by its index, after n more of a call's tool. It does not
// modify uses.
func (p *Policy) countUse(uses []int, c *Call, n int) []int {
	copied := false
	for i, u := range p.MaxUses {
		if !u.limits(c) {
			continue
		}
		if !copied {
			uses, copied = append(slices.Clone(uses), make([]int, len(p.MaxUses)-len(uses))...), true
		}
		uses[i] += n
	}
	return uses
}

// usedUp returns the limit on the tool of a call that is reached; 0 = none is.
func (p *Policy) usedUp(uses []int, c *Call) (most int) {
	for i, u := range p.MaxUses {
		if u.limits(c) && i < len(uses) && uses[i] >= u.Most {
			return u.Most
		}
	}
	return 0
}

// tooOften is the answer of a call of a tool whose limit of uses is reached.
func tooOften(name string, most int) string {
	return fmt.Sprintf("Not run: max_uses of the tool %s is %d in this run, and is used up. Continue without further calls of it.", name, most)
}
