package secret

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Text is configured text that may end in one reference: a key
// ("env:OPENAI_API_KEY"), a header ("Bearer env:TOKEN"), or a literal. A
// literal may be a credential, and so may what stands before a reference; both
// are printed as [redacted]. The zero value is empty.
type Text struct {
	literal *string // behind a pointer, so that no %v of a struct around it shows it
	ref     Ref
}

// Parse reads a Text. A reference starts at the beginning or after a space and
// runs to the end; there is at most one. Text without a reference is literal.
// The error never quotes s.
func Parse(s string) (Text, error) {
	if strings.ContainsFunc(s, func(r rune) bool { return isControl(r) && r != '\t' }) {
		return Text{}, errors.New("has a control character")
	}
	at := findRef(s)
	if at < 0 {
		return literal(s), nil
	}
	ref, err := ParseRef(s[at:])
	if err != nil {
		return Text{}, err
	}
	t := literal(s[:at])
	t.ref = ref
	return t, nil
}

func literal(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{literal: &s}
}

// findRef returns where the first reference of s starts, -1 without one.
func findRef(s string) int {
	for at := 0; ; {
		for _, k := range []Kind{Env, File, Vault} {
			if strings.HasPrefix(s[at:], string(k)+":") {
				return at
			}
		}
		next := strings.IndexByte(s[at:], ' ')
		if next < 0 {
			return -1
		}
		at += next + 1
	}
}

// Ref returns the reference at the end of the text; zero without one.
func (t Text) Ref() Ref { return t.ref }

// Under returns the text with a relative path of a file: reference below dir. An
// empty dir leaves the path as it is.
func (t Text) Under(dir string) Text {
	if path := t.ref.Name(); dir != "" && t.ref.Kind() == File && !filepath.IsAbs(path) {
		t.ref = Ref(string(File) + ":" + filepath.Join(dir, path))
	}
	return t
}

// IsZero reports whether nothing was configured.
func (t Text) IsZero() bool { return t.literal == nil && t.ref == "" }

// IsLiteral reports whether the text is there and holds no reference.
func (t Text) IsLiteral() bool { return t.literal != nil && t.ref == "" }

// Literal returns what stands before the reference: all of a literal text. It
// may be a credential.
func (t Text) Literal() Value { return Value{t.literal} }

// Equal reports whether both are written the same.
func (t Text) Equal(u Text) bool {
	return t.ref == u.ref && subtle.ConstantTimeCompare([]byte(t.plain()), []byte(u.plain())) == 1
}

func (t Text) plain() string {
	if t.literal == nil {
		return ""
	}
	return *t.literal
}

// String shows the reference and hides everything else.
func (t Text) String() string {
	switch {
	case t.literal == nil:
		return string(t.ref)
	case t.ref == "":
		return redacted
	}
	return redacted + " " + string(t.ref)
}

// Format prints like String whatever the verb.
func (t Text) Format(f fmt.State, _ rune) { writeTo(f, t.String()) }

// GoString prints like String.
func (t Text) GoString() string { return t.String() }

// MarshalText writes what String prints: a dump of a configuration shows where
// its credentials come from.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
