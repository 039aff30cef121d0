// Package visible takes out of a text what a person who reads it does not see
// and a model or a terminal obeys: zero-width characters, bidirectional
// controls, the tag block, variation selectors, control characters and the
// escape sequences of terminals.
//
//	"delete\u200b all \x1b]8;;http://evil\x1b\\here\x1b]8;;\x1b\\" ──Text──► "delete all here"
//
// Characters of those kinds that a script or an emoji is written with stay where
// that is what they do: the joiners between letters of Persian or Hindi, the one
// that joins a family, the selector that makes a heart red. So texts of people
// come through, and a message that is written in such characters does not.
//
// Both functions leave alone what has nothing hidden, byte for byte, and change
// nothing when they are applied again.
package visible
