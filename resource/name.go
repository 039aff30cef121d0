package resource

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The most characters of a tool's name, which is what OpenAI takes, and of the part that is the resource's.
const (
	maxName = 64
	maxPart = 48
)

// hashDigits is how many digits distinguish names that look alike.
const hashDigits = 6

// namePart returns the part of tool names that a resource's name is. It depends on nothing but the name.
func namePart(name string) string {
	if len(name) <= maxPart && isPlain(name) {
		return name
	}
	plain := strings.Trim(strings.Map(func(c rune) rune {
		if isPlainRune(c) {
			return c
		}
		return '_'
	}, name), "_")
	if plain == "" {
		plain = "resource"
	}
	plain = plain[:min(len(plain), maxPart-1-hashDigits)]
	sum := sha256.Sum256([]byte(name))
	return plain + "_" + hex.EncodeToString(sum[:])[:hashDigits]
}

func isPlain(name string) bool {
	return strings.IndexFunc(name, func(c rune) bool { return !isPlainRune(c) }) < 0
}

func isPlainRune(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
