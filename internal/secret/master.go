package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// masterSize is the size of a master key and of a data key in bytes (AES-256).
const masterSize = 32

// master is one master key of a [Keyring].
type master struct {
	id  [idSize]byte // identifies the key in sealed secrets; derived from it by HMAC
	key [masterSize]byte
}

const keyHint = "; generate one with: openssl rand -base64 32"

// ParseKey parses 32 random bytes in base64 (standard or URL alphabet) or hexadecimal.
// The error says what is wrong and how to generate a key. It does not quote v.
func ParseKey(v Value) (key [masterSize]byte, err error) {
	raw := decodeMaster(strings.TrimSpace(v.Reveal()))
	switch {
	case raw == nil:
		return key, errors.New("is not base64 or hexadecimal; want 32 random bytes" + keyHint)
	case len(raw) != masterSize:
		return key, errors.New("does not have 32 bytes" + keyHint)
	case !looksRandom(raw):
		return key, errors.New("is not random; a guessable key does not protect the secrets" + keyHint)
	}
	return [masterSize]byte(raw), nil
}

func parseMaster(v Value) (*master, error) {
	key, err := ParseKey(v)
	if err != nil {
		return nil, err
	}
	m := &master{key: key}
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte("turnpike master key id"))
	copy(m.id[:], mac.Sum(nil))
	return m, nil
}

// decodeMaster returns nil if s is neither. Hexadecimal must be tried first: it is also
// valid base64 of other bytes.
func decodeMaster(s string) []byte {
	if raw, err := hex.DecodeString(s); err == nil {
		return raw
	}
	s = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(s, "="))
	if raw, err := base64.RawStdEncoding.DecodeString(s); err == nil {
		return raw
	}
	return nil
}

// looksRandom returns false for keys that are typed: words, repeated bytes, sequences
// such as 0 1 2 3. It returns false for fewer than one in 10¹² random keys.
func looksRandom(raw []byte) bool {
	const few = 16 // minimum number of different bytes, and of different steps; random keys have about 30
	values, steps := map[byte]bool{}, map[byte]bool{}
	printable := true
	for i, b := range raw {
		values[b] = true
		steps[b-raw[max(i, 1)-1]] = true
		printable = printable && b >= ' ' && b <= '~'
	}
	return len(values) >= few && len(steps) >= few && !printable
}
