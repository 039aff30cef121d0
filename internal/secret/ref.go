package secret

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Ref is a reference to a credential, such as "env:TOKEN". A Ref is not secret. The
// zero value is no reference.
type Ref string

// Kind is the source of a [Ref].
type Kind string

// The kinds: the prefix of a reference.
const (
	Env   Kind = "env"
	File  Kind = "file"
	Vault Kind = "secret"
)

// MaxPath is the maximum length of a path in a reference, in bytes.
const MaxPath = 4096

// ParseRef parses s, which must be one reference and nothing else. The error does not
// quote s: an invalid reference may be a credential.
func ParseRef(s string) (Ref, error) {
	kind, name, ok := strings.Cut(s, ":")
	if !ok {
		return "", errors.New("not a reference: want env:NAME, file:PATH or secret:NAME")
	}
	if err := checkName(Kind(kind), name); err != nil {
		return "", err
	}
	return Ref(s), nil
}

// Kind returns the kind of the reference.
func (r Ref) Kind() Kind {
	kind, _, _ := strings.Cut(string(r), ":")
	return Kind(kind)
}

// Name returns the part after the kind: a variable, a path or an entry of the vault.
func (r Ref) Name() string {
	_, name, _ := strings.Cut(string(r), ":")
	return name
}

func checkName(k Kind, name string) error {
	switch k {
	case Env:
		return checkPattern("env:", name, `^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	case Vault:
		return checkPattern("secret:", name, `^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)
	case File:
		return checkPath(name)
	}
	return errors.New("not a reference: want env:NAME, file:PATH or secret:NAME")
}

func checkPattern(kind, name, pattern string) error {
	if regexp.MustCompile(pattern).MatchString(name) {
		return nil
	}
	return fmt.Errorf("the name after %s must match %s and end the value", kind, pattern)
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("file: needs a path")
	case len(path) > MaxPath:
		return fmt.Errorf("the path after file: is longer than %d bytes", MaxPath)
	case strings.ContainsFunc(path, isControl):
		return errors.New("the path after file: has a control character")
	case findRef(path) >= 0:
		return errors.New("more than one reference; a value may hold one, at its end")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
