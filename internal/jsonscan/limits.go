package jsonscan

import "fmt"

// The limits of Check. Real requests stay far below them.
const (
	maxDepth  = 64      // levels of objects and arrays
	maxNames  = 100_000 // members of all objects
	maxDigits = 64      // characters of a number
)

// Check returns an error if a text would take many times its size in memory, or
// too much time, when it is decoded: one of brackets, member names or digits only.
// The error completes a sentence about the text, such as "nests deeper than 64
// levels, at byte 70". For text that is not valid JSON the result is arbitrary.
func Check(text []byte) error {
	depth, names, digits := 0, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			i += StringLen(text[i:]) - 1
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ':':
			names++
		case isNumeric(c):
			digits++
			if digits > maxDigits {
				return fmt.Errorf("has a number of more than %d characters, near byte %d", maxDigits, i)
			}
			continue
		}
		digits = 0
		switch {
		case depth > maxDepth:
			return fmt.Errorf("nests deeper than %d levels, at byte %d", maxDepth, i)
		case names > maxNames:
			return fmt.Errorf("has more than %d members", maxNames)
		}
	}
	return nil
}

// isNumeric reports whether a byte outside of strings is part of a number. It is also
// true for the e of true and false, which is harmless: it is never next to digits.
func isNumeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// Depth returns how many levels of objects and arrays a text has. For text that is
// not valid JSON the result is arbitrary.
func Depth(text []byte) int {
	deepest, depth := 0, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += StringLen(text[i:]) - 1
		case '{', '[':
			depth++
			deepest = max(deepest, depth)
		case '}', ']':
			depth--
		}
	}
	return deepest
}
