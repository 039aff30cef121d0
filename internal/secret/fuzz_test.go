package secret_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// FuzzOpen checks that a sealed secret opens for its org and name only, and that no
// modified, truncated or forged one opens. // K06
func FuzzOpen(f *testing.F) {
	f.Add("o", "n", "value", "o", "n2", 9, byte(1), []byte("forged"))
	f.Add("ab", "c", "", "a", "bc", 0, byte(1), []byte{1})
	f.Add("a", "b", "\x00", "a", "b", 40, byte(0x80), bytes.Repeat([]byte{1}, 120))
	k, err := secret.NewKeyring(secret.NewValue(masterKey))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, org, name, value, org2, name2 string, at int, flip byte, forged []byte) {
		sealed := seal(t, k, org, name, value)
		opens(t, k, org, name, sealed, value)
		if org != org2 || name != name2 {
			fails(t, k, org2, name2, sealed, secret.ErrDamaged)
		}
		if flip != 0 {
			broken := bytes.Clone(sealed)
			broken[uint(at)%uint(len(broken))] ^= flip
			mustNotOpen(t, k, org, name, broken)
		}
		mustNotOpen(t, k, org, name, sealed[:uint(at)%uint(len(sealed))])
		mustNotOpen(t, k, org, name, append(bytes.Clone(sealed), forged...)[:len(sealed)+min(len(forged), 1)], sealed)
		mustNotOpen(t, k, org, name, forged)
		mustNotOpen(t, k, org, name, append(bytes.Clone(sealed[:9]), forged...)) // under the right master key
		renewed, err := k.Renew(org, name, sealed)
		if err != nil || !bytes.Equal(renewed, sealed) {
			t.Fatalf("Renew under the same key changed the secret: %v", err)
		}
	})
}

// mustNotOpen fails the test if the bytes open, unless they are one of except.
func mustNotOpen(t *testing.T, k *secret.Keyring, org, name string, sealed []byte, except ...[]byte) {
	t.Helper()
	for _, e := range except {
		if bytes.Equal(e, sealed) {
			return
		}
	}
	if v, err := k.Open(org, name, sealed); err == nil || !v.IsZero() {
		t.Fatalf("%x opens as %q", sealed, v.Reveal())
	}
}

// FuzzRedaction checks that a Text prints its reference and no literal, and that no
// error quotes it. // K06
func FuzzRedaction(f *testing.F) {
	for _, s := range []string{"Bearer env:TOKEN", "sk-live-0123456789", "secret:a", "x file:/a/b", "env:", "  env:1x", "a env:X env:Y", "\x1benv:X", "token secret:../x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, err := secret.Parse(s)
		if err != nil {
			if len(s) >= 12 && strings.Contains(err.Error(), s) {
				t.Fatalf("%q is quoted by %v", s, err)
			}
			return
		}
		want := string(text.Ref())
		switch literal := text.Literal().Reveal(); {
		case literal != "" && want != "":
			want = "[redacted] " + want
		case literal != "":
			want = "[redacted]"
		}
		dump, err := json.Marshal(map[string]any{"k": text})
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]string
		if err := json.Unmarshal(dump, &back); err != nil {
			t.Fatal(err)
		}
		for _, shown := range []string{text.String(), fmt.Sprintf("%v", text), fmt.Sprintf("%#v", text), fmt.Sprintf("%s", []any{text})[1 : len(want)+1]} {
			if shown != want {
				t.Fatalf("%q is shown as %q, want %q", s, shown, want)
			}
		}
		if string([]rune(want)) != back["k"] { // invalid UTF-8 is encoded as U+FFFD
			t.Fatalf("%q is dumped as %s", s, dump)
		}
		if ref := text.Ref(); ref != "" {
			again, err := secret.ParseRef(string(ref))
			if err != nil || again != ref || string(ref.Kind())+":"+ref.Name() != string(ref) {
				t.Fatalf("%q has the reference %q, which is read as %q, %v", s, ref, again, err)
			}
		}
	})
}

// FuzzMasterKey checks that an invalid master key is refused and not quoted, and that a
// secret sealed under a valid one opens under this key only. // K06
func FuzzMasterKey(f *testing.F) {
	f.Add(masterKey)
	f.Add(otherKey + "\n")
	f.Add(strings.Repeat("0123456789abcdef", 4))
	f.Add("correct horse battery staple")
	other, err := secret.NewKeyring(secret.NewValue("s0R4mT8qLxZcVbNiUyEeWwQaPpKkJhGg7d6f5a3s2d1="))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key string) {
		k, err := secret.NewKeyring(secret.NewValue(key))
		if err != nil {
			if key := strings.TrimSpace(key); len(key) >= 12 && strings.Contains(err.Error(), key) {
				t.Fatalf("%q is quoted by %v", key, err)
			}
			return
		}
		sealed := seal(t, k, "o", "n", "value")
		opens(t, k, "o", "n", sealed, "value")
		if _, err := other.Open("o", "n", sealed); !errors.Is(err, secret.ErrMasterKey) {
			t.Fatalf("another key: %v", err)
		}
	})
}
