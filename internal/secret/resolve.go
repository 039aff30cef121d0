package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// MaxSize is the largest credential, in bytes.
const MaxSize = 64 << 10

// ErrNoVault is returned for a secret: reference where no vault is there to
// look it up in.
var ErrNoVault = errors.New("the vault is off, because master_key is not set")

// ErrVaultOnly is returned for an env: or file: reference where only secret: may
// be looked up.
var ErrVaultOnly = errors.New("only secret:NAME is looked up here: what is stored may not name the gateway's variables and files")

// Resolver looks references up. It is safe for concurrent use when its
// environment is. It holds nothing: a changed file or variable is seen by the
// next call.
type Resolver struct {
	env   func(string) (string, bool) // nil = only the vault is there, without files either
	vault Lookup                      // nil = none
}

// Lookup returns an entry of one org's vault. Its error says what is the matter
// and nothing of the content; the Resolver names the entry.
type Lookup func(ctx context.Context, name string) (Value, error)

// NewResolver returns a Resolver that reads variables with env, such as
// os.LookupEnv, and files from disk.
func NewResolver(env func(string) (string, bool)) *Resolver {
	return &Resolver{env: env}
}

// With returns a Resolver that also looks secret: references up, in one org's
// vault. Nil leaves it without one.
func (r *Resolver) With(vault Lookup) *Resolver {
	return &Resolver{env: r.env, vault: vault}
}

// VaultOnly returns a Resolver that looks up secret: references, in one org's
// vault, and no others: for texts that the operator has not written. Nil leaves
// it without a vault.
func VaultOnly(vault Lookup) *Resolver { return &Resolver{vault: vault} }

// Resolve returns the text with its reference replaced by what it names. A
// variable that is not set, a file that cannot be read, an entry that the vault
// does not have, and a credential that is empty, too large or no single line
// are errors that say which reference is meant and nothing of its content. An empty text gives an empty value.
func (r *Resolver) Resolve(ctx context.Context, t Text) (Value, error) {
	if t.ref == "" {
		return NewValue(t.plain()), nil
	}
	s, err := r.lookup(ctx, t.ref)
	if err != nil {
		return Value{}, err
	}
	if err := checkContent(s); err != nil {
		return Value{}, fmt.Errorf("%s %w", t.ref, err)
	}
	return NewValue(t.plain() + s), nil
}

func (r *Resolver) lookup(ctx context.Context, ref Ref) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if r.env == nil && ref.Kind() != Vault {
		return "", fmt.Errorf("%s: %w", ref, ErrVaultOnly)
	}
	switch ref.Kind() {
	case Env:
		s, ok := r.env(ref.Name())
		if !ok {
			return "", fmt.Errorf("environment variable %s is not set", ref.Name())
		}
		return s, nil
	case File:
		return readFile(ref.Name())
	}
	if r.vault == nil {
		return "", fmt.Errorf("%s: %w", ref, ErrNoVault)
	}
	v, err := r.vault(ctx, ref.Name())
	if err != nil {
		return "", fmt.Errorf("%s: %w", ref, err)
	}
	return v.Reveal(), nil
}

// readFile reads a secret file without the newline that editors put at its end.
func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+2)) // a full-size credential, a newline, and one byte to tell
	if err != nil {
		return "", err
	}
	s, cut := strings.CutSuffix(string(data), "\n")
	if cut {
		s = strings.TrimSuffix(s, "\r")
	}
	return s, nil
}

// Check refuses what no credential is and no header can carry: nothing, more
// than [MaxSize], and control characters. The error says which and quotes
// nothing.
func (v Value) Check() error { return checkContent(v.Reveal()) }

func checkContent(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > MaxSize:
		return fmt.Errorf("is larger than %d bytes", MaxSize)
	case strings.ContainsFunc(s, isControl):
		return errors.New("has a control character, such as a line break")
	}
	return nil
}
