package visible

import "strings"

// What begins an escape sequence of a terminal, from ECMA-48: the escape
// character, and the control characters that are such a beginning in one.
const (
	escape = '\x1b'
	dcs8   = '\u0090'
	sos8   = '\u0098'
	csi8   = '\u009b'
	osc8   = '\u009d'
	pm8    = '\u009e'
	apc8   = '\u009f'
)

// longest is how long a sequence may be, in bytes. One without an end does not
// swallow the text after it.
const longest = 4 << 10

// sequence returns how many bytes of s, which stood after an escape character,
// belong to its sequence.
func sequence(s string) int {
	if s == "" {
		return 0
	}
	switch s[0] {
	case '[':
		return after(control(s[1:]))
	case ']', 'P', 'X', '^', '_':
		return after(command(s[1:]))
	}
	n := 0
	for n < len(s) && s[n] >= ' ' && s[n] <= '/' { // intermediate bytes, as in ESC ( B
		n++
	}
	if n < len(s) && s[n] >= '0' && s[n] <= '~' && n < 3 {
		return n + 1
	}
	return 0
}

// after adds the byte before a rest of n bytes, where there is such a rest.
func after(n int) int { return n + min(n, 1) }

// control returns the length of the rest of a control sequence: parameters,
// intermediate bytes and the final one; 0 for one without end.
func control(s string) int {
	n := 0
	for n < len(s) && n < longest && s[n] >= ' ' && s[n] <= '?' {
		n++
	}
	if n < len(s) && s[n] >= '@' && s[n] <= '~' {
		return n + 1
	}
	return 0
}

// command returns the length of the rest of a command string: everything up to
// its terminator, such as the address of a link; 0 for one without end.
func command(s string) int {
	s = s[:min(len(s), longest)]
	for i := range len(s) {
		switch {
		case s[i] == '\a':
			return i + 1
		case s[i] == '\n':
			return 0
		case strings.HasPrefix(s[i:], "\x1b\\"), strings.HasPrefix(s[i:], "\u009c"):
			return i + 2
		case s[i] == escape:
			return i // another sequence ends it
		}
	}
	return 0
}
