package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// Naming says how the model sees a server's tools. The zero value is Bare.
type Naming string

// The ways of naming.
const (
	Bare       Naming = "bare"       // the tool's own name
	Namespaced Naming = "namespaced" // mcp__{server}__{tool}
	Prefixed   Naming = "prefixed"   // {prefix}_{tool}
)

// maxName is what the OpenAI dialect allows for a function's name.
const maxName = 64

// name returns the name under which the model sees the server's tool: at most 64
// characters of [a-zA-Z0-9_-], and a letter or _ at the beginning, which Gemini demands. A
// name that had to be changed or cut ends with a hash of the original name, so that two
// tools never get the same name by it.
func (s Server) name(original string) string { return s.named(s.Naming, original) }

// second returns another name for the tool of a server that the caller sees, whose first name is
// taken. No tool of a hidden server takes it away: the caller would see that there is one.
func (s Server) second(original string, taken func(string) bool) string {
	name := s.named(Namespaced, original)
	if !taken(name) {
		return name
	}
	return hashed(s.front(Namespaced)+strings.Map(allowed, original), s.Name+"__"+original)
}

// named is name with another Naming.
func (s Server) named(as Naming, original string) string {
	front, clean := s.front(as), strings.Map(allowed, original)
	if clean == original && len(front+clean) <= maxName && clean != "" && beginsWell(front+clean) {
		return front + clean
	}
	return hashed(front+clean, front+original)
}

// front returns what is in front of a tool's own name.
func (s Server) front(as Naming) string {
	switch as {
	case Namespaced:
		return "mcp__" + strings.Map(allowed, loop.LabelOf(s.Name)) + "__"
	case Prefixed:
		return strings.Map(allowed, cmp.Or(s.Prefix, s.Name)) + "_"
	case Bare:
	}
	return ""
}

// hashed returns the name with a hash of the original at its end.
func hashed(name, original string) string {
	sum := sha256.Sum256([]byte(original))
	suffix := "_" + hex.EncodeToString(sum[:4])
	if !beginsWell(name) {
		name = "_" + name
	}
	return name[:min(len(name), maxName-len(suffix))] + suffix
}

// beginsWell reports whether a name begins with a letter or _, or is empty.
func beginsWell(name string) bool {
	return name == "" || name[0] != '-' && (name[0] < '0' || name[0] > '9')
}

func allowed(r rune) rune {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-':
		return r
	}
	return '_'
}
