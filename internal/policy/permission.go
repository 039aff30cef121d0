package policy

// Permission says whether the gateway executes the tool calls of a run. The zero value is as Auto.
type Permission string

// The permissions, the least strict one first.
const (
	Auto Permission = "auto" // as the rules of the tools say
	Ask  Permission = "ask"  // each call waits for approval
	Deny Permission = "deny" // none is executed
)

// Permissions returns all permissions, the least strict one first.
func Permissions() []Permission { return []Permission{Auto, Ask, Deny} }

// StricterThan reports whether p allows less than other.
func (p Permission) StricterThan(other Permission) bool { return p.rank() > other.rank() }

func (p Permission) rank() int {
	switch p {
	case Ask:
		return 1
	case Deny:
		return 2
	case Auto, "":
	}
	return 0
}
