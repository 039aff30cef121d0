package secret

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

const redacted = "[redacted]"

// Value is a plaintext credential. It prints as [redacted] in fmt, slog and encoders.
// Only Reveal returns it. The zero value is empty.
type Value struct {
	s *string // a pointer, so that %v of a struct that contains a Value does not print it
}

// NewValue returns s as a Value.
func NewValue(s string) Value { return Value{&s} }

// Reveal returns the credential. It must be called only where the credential is sent or
// hashed.
func (v Value) Reveal() string {
	if v.s == nil {
		return ""
	}
	return *v.s
}

// IsZero reports whether the credential is empty.
func (v Value) IsZero() bool { return v.Reveal() == "" }

// Equal reports whether the credentials are equal, in constant time for equal lengths.
func (v Value) Equal(w Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(w.Reveal())) == 1
}

// String returns [redacted].
func (v Value) String() string { return redacted }

// GoString returns [redacted].
func (v Value) GoString() string { return redacted }

// Format writes [redacted] for every verb.
func (v Value) Format(f fmt.State, _ rune) { writeTo(f, redacted) }

// LogValue returns [redacted].
func (v Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON returns "[redacted]".
func (v Value) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns [redacted].
func (v Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// writeTo writes s to f. It ignores the error: a fmt.State is a buffer.
func writeTo(f fmt.State, s string) { _, _ = io.WriteString(f, s) }
