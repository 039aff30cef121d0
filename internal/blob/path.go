package blob

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The limits of paths, in bytes.
const (
	MaxPath = 768 // with a prefix of the bucket it is within the 1,024 bytes of S3
	MaxName = 200 // of a name between slashes
)

// ArgumentError reports a path or another argument that is not valid.
type ArgumentError struct {
	Argument string // such as path
	Why      string
}

func (e *ArgumentError) Error() string { return e.Argument + " " + e.Why }

func pathError(argument, why string) error { return &ArgumentError{argument, why} }

// CheckPath returns an *[ArgumentError] unless the path names a file: names with slashes between them, such as
// reports/january.txt. A path is relative, has neither . nor .. as a name, no control character and no
// backslash, and is in Unicode normalization form C: each file has one path.
func CheckPath(path string) error {
	if why := refusedPath(path); why != "" {
		return pathError("path", why)
	}
	return nil
}

// CheckPrefix is CheckPath for the beginning of a path, which may be empty and may end anywhere in a name.
func CheckPrefix(prefix string) error {
	whole := prefix
	if prefix == "" || strings.HasSuffix(prefix, "/") {
		whole += "x"
	} else if strings.HasSuffix(prefix, ".") { // the beginning of .. or of a name such as ...txt
		whole += "x"
	}
	if why := refusedPath(whole); why != "" {
		return pathError("prefix", why)
	}
	return nil
}

func refusedPath(path string) string {
	switch {
	case path == "":
		return "is empty"
	case len(path) > MaxPath:
		return fmt.Sprintf("has %d bytes; want at most %d", len(path), MaxPath)
	case !utf8.ValidString(path):
		return "is not UTF-8 text"
	case strings.HasPrefix(path, "/"):
		return "begins with /; paths are relative to the bucket"
	case strings.HasSuffix(path, "/"):
		return "ends with /, so it names no file"
	case strings.Contains(path, `\`):
		return `contains \; names are separated by /`
	case Hides(path):
		return "contains a control character"
	case !norm.NFC.IsNormalString(path):
		return "is not in Unicode normalization form C (NFC)"
	}
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "":
			return "contains // or an empty name"
		case name == "." || name == "..":
			return "contains the name " + name
		case len(name) > MaxName:
			return fmt.Sprintf("contains a name of %d bytes; want at most %d", len(name), MaxName)
		}
	}
	return ""
}

// Hides reports whether a text contains a character that is not shown, or that changes the direction of text.
func Hides(text string) bool { return strings.ContainsFunc(text, hidden) }

// hidden reports whether the character is a control character, also one that changes the direction of text.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\ufeff' || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Noncharacter_Code_Point, r)
}
