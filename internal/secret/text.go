package secret

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Text is a configured text that may end in one reference: "env:OPENAI_API_KEY",
// "Bearer env:TOKEN", or a literal. The literal part may be a credential and prints as
// [redacted]. The zero value is empty.
type Text struct {
	literal *string // a pointer, so that %v of a struct that contains a Text does not print it
	ref     Ref
}

// Parse parses a Text. A reference starts at the beginning or after a space and extends
// to the end. There is at most one. A text without a reference is a literal. The error
// never quotes s.
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

// findRef returns the index of the first reference in s, or -1.
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

// Ref returns the reference at the end of the text, or "".
func (t Text) Ref() Ref { return t.ref }

// Under returns the text with the relative path of a file: reference joined to dir. It
// returns t unchanged if dir is empty.
func (t Text) Under(dir string) Text {
	if path := t.ref.Name(); dir != "" && t.ref.Kind() == File && !filepath.IsAbs(path) {
		t.ref = Ref(string(File) + ":" + filepath.Join(dir, path))
	}
	return t
}

// IsZero reports whether the text is empty.
func (t Text) IsZero() bool { return t.literal == nil && t.ref == "" }

// IsLiteral reports whether the text is not empty and has no reference.
func (t Text) IsLiteral() bool { return t.literal != nil && t.ref == "" }

// Literal returns the part before the reference, or the whole text if there is none. It
// may be a credential.
func (t Text) Literal() Value { return Value{t.literal} }

// Equal reports whether both have the same literal and the same reference. The
// credentials they refer to are not compared.
func (t Text) Equal(u Text) bool {
	return t.ref == u.ref && subtle.ConstantTimeCompare([]byte(t.plain()), []byte(u.plain())) == 1
}

func (t Text) plain() string {
	if t.literal == nil {
		return ""
	}
	return *t.literal
}

// String returns the reference, with [redacted] for the literal part.
func (t Text) String() string {
	switch {
	case t.literal == nil:
		return string(t.ref)
	case t.ref == "":
		return redacted
	}
	return redacted + " " + string(t.ref)
}

// Format writes what String returns, for every verb.
func (t Text) Format(f fmt.State, _ rune) { writeTo(f, t.String()) }

// GoString returns what String returns.
func (t Text) GoString() string { return t.String() }

// MarshalText returns what String returns: a dump of a configuration contains the
// references of its credentials.
func (t Text) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
