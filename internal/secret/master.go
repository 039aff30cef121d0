package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// masterSize is the size of a master key: that of AES-256.
const masterSize = 32

// master is one master key of a [Keyring].
type master struct {
	id  [idSize]byte // names the key in what it has sealed, and tells nothing of it
	key [masterSize]byte
}

const makeOne = "; make one with: openssl rand -base64 32"

// ParseKey reads 32 random bytes, in base64 or in hexadecimal. The error says
// what is wrong and how to make a key, and quotes nothing.
func ParseKey(v Value) (key [masterSize]byte, err error) {
	raw := decodeMaster(strings.TrimSpace(v.Reveal()))
	switch {
	case raw == nil:
		return key, errors.New("is not base64 or hexadecimal; want 32 random bytes" + makeOne)
	case len(raw) != masterSize:
		return key, errors.New("does not have 32 bytes" + makeOne)
	case !looksRandom(raw):
		return key, errors.New("is not random; a key that can be guessed protects nothing" + makeOne)
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

// decodeMaster returns nil for what is neither. Hexadecimal comes first: it is
// base64, too, of something longer.
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

// looksRandom refuses what somebody has typed: words, one byte again and again,
// 0 1 2 3 …. Of random keys it refuses fewer than one in a million million.
func looksRandom(raw []byte) bool {
	const few = 16 // random keys have about 30 of either
	values, steps := map[byte]bool{}, map[byte]bool{}
	printable := true
	for i, b := range raw {
		values[b] = true
		steps[b-raw[max(i, 1)-1]] = true
		printable = printable && b >= ' ' && b <= '~'
	}
	return len(values) >= few && len(steps) >= few && !printable
}
