package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"strings"
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

// named is name with another Naming.
func (s Server) named(as Naming, original string) string {
	front := ""
	switch as {
	case Namespaced:
		front = "mcp__" + strings.Map(allowed, s.Name) + "__"
	case Prefixed:
		front = strings.Map(allowed, cmp.Or(s.Prefix, s.Name)) + "_"
	}
	clean := strings.Map(allowed, original)
	if clean == original && len(front+clean) <= maxName && clean != "" && beginsWell(front+clean) {
		return front + clean
	}
	sum := sha256.Sum256([]byte(front + original))
	suffix := "_" + hex.EncodeToString(sum[:4])
	full := front + clean
	if !beginsWell(full) {
		full = "_" + full
	}
	return full[:min(len(full), maxName-len(suffix))] + suffix
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
