package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Two master keys from openssl rand -base64 32.
const (
	masterKey = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="
	otherKey  = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
)

func keyring(t *testing.T, key string) *secret.Keyring {
	t.Helper()
	k, err := secret.NewKeyring(secret.NewValue(key))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func seal(t *testing.T, k *secret.Keyring, org, name, value string) []byte {
	t.Helper()
	sealed, err := k.Seal(org, name, secret.NewValue(value))
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// opens fails the test unless Open returns the value.
func opens(t *testing.T, k *secret.Keyring, org, name string, sealed []byte, value string) {
	t.Helper()
	if got, err := k.Open(org, name, sealed); err != nil || got.Reveal() != value {
		t.Errorf("%s/%s: %d bytes, %v", org, name, len(got.Reveal()), err)
	}
}

// fails fails the test unless Open returns the error want, no value, and no part of the
// secret in the error.
func fails(t *testing.T, k *secret.Keyring, org, name string, sealed []byte, want error) {
	t.Helper()
	got, err := k.Open(org, name, sealed)
	if !errors.Is(err, want) || !got.IsZero() || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("%q/%q: %d bytes, %v; want %v", org, name, len(got.Reveal()), err, want)
	}
}

func TestSealedValueOpensAndLeaksNothing(t *testing.T) { // K06
	k := keyring(t, masterKey)
	for _, value := range []string{canary, "x", strings.Repeat("x", secret.MaxSize)} {
		one, two := seal(t, k, "a", "n", value), seal(t, k, "a", "n", value)
		opens(t, k, "a", "n", one, value)
		opens(t, keyring(t, masterKey), "a", "n", two, value)
		if len(value) > 1 && bytes.Contains(one, []byte(value)) {
			t.Error("the sealed form contains the value")
		}
		if raw, _ := base64.StdEncoding.DecodeString(masterKey); bytes.Contains(one, raw) {
			t.Error("the sealed form contains the master key")
		}
		const id = 1 + 8 // version and master key id are equal, nothing after them is
		for at := id; at+12 <= len(one); at++ {
			if bytes.Contains(two[id:], one[at:at+12]) {
				t.Fatalf("the same value sealed twice shares bytes at %d", at)
			}
		}
	}
}

func TestAMovedSecretDoesNotOpen(t *testing.T) { // K06 K07
	k := keyring(t, masterKey)
	sealed := seal(t, k, "ab", "c", canary)
	for _, to := range [][2]string{{"other", "c"}, {"ab", "other"}, {"a", "bc"}, {"abc", ""}, {"", "abc"}, {"c", "ab"}} {
		fails(t, k, to[0], to[1], sealed, secret.ErrDamaged)
	}
}

// The data key of one secret does not open the value of another.
func TestLayersOfTwoSecretsCannotBeCombined(t *testing.T) { // K06
	k := keyring(t, masterKey)
	one, two := seal(t, k, "a", "n", canary), seal(t, k, "a", "n", canary+"2")
	const head = 1 + 8 + 12 + 32 + 16
	fails(t, k, "a", "n", append(bytes.Clone(one[:head]), two[head:]...), secret.ErrDamaged)
}

func TestASecretWithAFlippedBitDoesNotOpen(t *testing.T) { // K06
	k := keyring(t, masterKey)
	sealed := seal(t, k, "a", "n", canary)
	for i := range sealed {
		for bit := range 8 {
			flipped := bytes.Clone(sealed)
			flipped[i] ^= 1 << bit
			if v, err := k.Open("a", "n", flipped); err == nil || !v.IsZero() {
				t.Fatalf("it opens with bit %[2]d of byte %[1]d flipped", i, bit)
			}
		}
	}
	for n := range sealed {
		if v, err := k.Open("a", "n", sealed[:n]); err == nil || !v.IsZero() {
			t.Fatalf("it opens cut after %d bytes", n)
		}
	}
	fails(t, k, "a", "n", append(bytes.Clone(sealed), 0), secret.ErrDamaged)
	fails(t, k, "a", "n", nil, secret.ErrDamaged)
}

func TestOpenReportsAnotherMasterKey(t *testing.T) { // K06
	sealed := seal(t, keyring(t, masterKey), "a", "n", canary)
	fails(t, keyring(t, otherKey), "a", "n", sealed, secret.ErrMasterKey)
	if text := secret.ErrMasterKey.Error(); !strings.Contains(text, "set master_key_previous") || !strings.Contains(text, "store the secret again") {
		t.Errorf("%q does not say what to do", text)
	}
	if _, err := keyring(t, masterKey).Open("a", "n", append([]byte{9}, sealed[1:]...)); err == nil || !strings.Contains(err.Error(), "another version of the program") {
		t.Errorf("another form: %v", err)
	}
}

func TestMasterKeyRotation(t *testing.T) { // K06
	sealed := seal(t, keyring(t, otherKey), "a", "n", canary)
	both, err := keyring(t, masterKey).WithPrevious(secret.NewValue(otherKey))
	if err != nil {
		t.Fatal(err)
	}
	opens(t, both, "a", "n", sealed, canary)
	renewed, err := both.Renew("a", "n", sealed)
	if err != nil {
		t.Fatal(err)
	}
	opens(t, keyring(t, masterKey), "a", "n", renewed, canary)
	fails(t, keyring(t, otherKey), "a", "n", renewed, secret.ErrMasterKey)
	opens(t, keyring(t, masterKey), "a", "n", seal(t, both, "a", "n", canary), canary)
	if again, err := both.Renew("a", "n", renewed); err != nil || !bytes.Equal(again, renewed) {
		t.Errorf("renewed twice: %v", err)
	}
	if _, err := both.Renew("b", "n", sealed); !errors.Is(err, secret.ErrDamaged) {
		t.Errorf("a moved secret was renewed: %v", err)
	}
}

func TestAMasterKeyMustBeThirtyTwoRandomBytes(t *testing.T) { // K06
	raw, err := base64.StdEncoding.DecodeString(masterKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, good := range map[string]string{
		"base64": masterKey, "without padding": strings.TrimRight(masterKey, "="), "of URLs": base64.URLEncoding.EncodeToString(raw),
		"hexadecimal": hex.EncodeToString(raw), "in capitals": strings.ToUpper(hex.EncodeToString(raw)), "with space around": " " + masterKey + "\n",
	} {
		k := keyring(t, good)
		opens(t, k, "a", "n", seal(t, keyring(t, masterKey), "a", "n", canary), canary)
		if t.Failed() {
			t.Fatalf("%s is parsed as another key", name)
		}
	}
	counting := make([]byte, 32)
	for i := range counting {
		counting[i] = byte(7 * i)
	}
	encode := base64.StdEncoding.EncodeToString
	for name, c := range map[string]struct{ key, want string }{
		"nothing":               {"", "does not have 32 bytes"},
		"a passphrase":          {canary + " correct horse battery staple", "is not base64 or hexadecimal"},
		"16 bytes":              {encode(raw[:16]), "does not have 32 bytes"},
		"31 bytes":              {encode(raw[:31]), "does not have 32 bytes"},
		"33 bytes":              {encode(append(raw[:32:32], 1)), "does not have 32 bytes"},
		"63 digits":             {hex.EncodeToString(raw)[:63], "does not have 32 bytes"},
		"zeros":                 {encode(make([]byte, 32)), "is not random"},
		"a few letters again":   {strings.Repeat("abcd", 10) + "abc", "is not random"},
		"counting":              {encode(counting), "is not random"},
		"words":                 {encode([]byte("CANARY, the quick brown fox hops")), "is not random"},
		"one byte in all of it": {strings.Repeat("7f", 32), "is not random"},
	} {
		_, err := secret.NewKeyring(secret.NewValue(c.key))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "openssl rand -base64 32") || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
