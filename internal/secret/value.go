package secret

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Value is a credential in the clear. Every way of printing it shows
// [redacted]; only Reveal gives it away. The zero value is empty.
type Value struct {
	s *string // behind a pointer, so that no %v of a struct around it shows it
}

// NewValue returns s as a Value.
func NewValue(s string) Value { return Value{&s} }

// Reveal returns the credential. Call it where it is put on the wire or
// hashed, and nowhere else.
func (v Value) Reveal() string {
	if v.s == nil {
		return ""
	}
	return *v.s
}

// IsZero reports whether the credential is empty.
func (v Value) IsZero() bool { return v.Reveal() == "" }

// Equal compares in time that depends on the lengths only.
func (v Value) Equal(w Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(w.Reveal())) == 1
}

// String returns [redacted].
func (v Value) String() string { return redacted }

// GoString returns [redacted].
func (v Value) GoString() string { return redacted }

// Format prints [redacted] whatever the verb.
func (v Value) Format(f fmt.State, _ rune) { writeTo(f, redacted) }

// LogValue logs [redacted].
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON writes "[redacted]".
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText writes [redacted].
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// writeTo ignores the error as fmt does: the state is a buffer.
func writeTo(f fmt.State, s string) { _, _ = io.WriteString(f, s) }
