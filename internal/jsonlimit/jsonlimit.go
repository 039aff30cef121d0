// Package jsonlimit bounds what a JSON text may ask of those who decode it. A
// text within its size in bytes can still be all brackets, names or digits,
// which cost a decoder many times their length.
package jsonlimit

import (
	"bytes"
	"fmt"
)

// The limits, from reference/reliability 4.6.
const (
	maxDepth  = 64      // levels of objects and arrays
	maxNames  = 100_000 // names of members, in all objects together
	maxDigits = 64      // characters of a number
)

// Check returns an error that says which limit the text is over, as the end of a
// sentence about the text. The text must be valid JSON; of any other the verdict
// means nothing.
func Check(text []byte) error {
	depth, names, digits := 0, 0, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			i += lengthOf(text[i:]) - 1
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

// isNumeric reports whether the byte, outside of strings, is part of a number.
// The e of true and false counts, too, which makes nothing longer.
func isNumeric(c byte) bool {
	return '0' <= c && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// lengthOf returns the length of the string that the text begins with.
func lengthOf(text []byte) int {
	at := 1
	for at < len(text) {
		next := bytes.IndexAny(text[at:], `"\`)
		if next < 0 {
			break
		}
		at += next + 1
		if text[at-1] == '"' {
			return at
		}
		at++ // what the backslash stands before
	}
	return len(text)
}
