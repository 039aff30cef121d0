package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// MaxSize is the maximum size of a credential, in bytes.
const MaxSize = 64 << 10

// ErrNoVault is wrapped by the error for a secret: reference without a vault.
var ErrNoVault = errors.New("the vault is off because its key is missing: the file master.key in the data directory, or the " +
	"setting master_key; restore it and restart the gateway")

// ErrVaultOnly is wrapped by the error of a [VaultOnly] Resolver for an env: or file:
// reference.
var ErrVaultOnly = errors.New("only secret:NAME is allowed here: stored settings cannot refer to the gateway's environment variables and files")

// Resolver resolves references. It caches nothing: a changed file, variable or vault
// entry is used by the next call. It is safe for concurrent use if its env and vault
// functions are.
type Resolver struct {
	env   func(string) (string, bool) // nil = neither variables nor files
	vault Lookup                      // nil = none
}

// Lookup returns an entry of one org's vault. Its error must not contain the value. It
// need not contain the name: the Resolver adds it.
type Lookup func(ctx context.Context, name string) (Value, error)

// NewResolver returns a Resolver for env: references, through env (such as
// os.LookupEnv), and for file: references.
func NewResolver(env func(string) (string, bool)) *Resolver {
	return &Resolver{env: env}
}

// WithVault returns a Resolver that also resolves secret: references, in one org's vault.
// With a nil vault they fail with ErrNoVault.
func (r *Resolver) WithVault(vault Lookup) *Resolver {
	return &Resolver{env: r.env, vault: vault}
}

// VaultOnly returns a Resolver for secret: references in one org's vault only. It must
// be used for texts that the operator did not write. With a nil vault every reference
// fails.
func VaultOnly(vault Lookup) *Resolver { return &Resolver{vault: vault} }

// Resolve returns the text with its reference replaced by the credential. It returns an
// error if the credential is missing, empty, larger than [MaxSize], or contains a
// control character. The error names the reference and never contains the credential.
// The zero Text resolves to an empty value.
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
			return "", fmt.Errorf("environment variable %s is not set; set it where turnpike starts", ref.Name())
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

// readFile returns the content of a secret file without one final newline, which
// editors append. It reads at most MaxSize+2 bytes.
func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+2)) // a credential of MaxSize, a newline, and one byte to detect more
	if err != nil {
		return "", err
	}
	s, cut := strings.CutSuffix(string(data), "\n")
	if cut {
		s = strings.TrimSuffix(s, "\r")
	}
	return s, nil
}

// Check returns an error if v is empty, larger than [MaxSize], or contains a control
// character, which no HTTP header can carry. The error does not quote v.
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
