package secret

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Ref names a credential, such as "env:TOKEN". A Ref is not itself secret. The
// zero value names nothing.
type Ref string

// Kind says where a [Ref] points.
type Kind string

// The kinds of reference, as they are written.
const (
	Env   Kind = "env"
	File  Kind = "file"
	Vault Kind = "secret"
)

// MaxPath is the longest file path of a reference, in bytes.
const MaxPath = 4096

// ParseRef reads a text that is one whole reference. The error does not quote
// the text: what looks like a bad reference may be a credential.
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

// Kind returns where the reference points.
func (r Ref) Kind() Kind {
	kind, _, _ := strings.Cut(string(r), ":")
	return Kind(kind)
}

// Name returns what follows the kind: the variable, the path or the entry.
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
	return fmt.Errorf("what follows %s must match %s and end the value", kind, pattern)
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
