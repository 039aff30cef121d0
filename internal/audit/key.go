package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// FileKey returns the signing key that the file holds: 32 random bytes in base64,
// from which the key is made. A file that is not there is made, for its owner
// alone.
func FileKey(path string) (ed25519.PrivateKey, error) {
	key, err := ReadFileKey(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	seed := make([]byte, ed25519.SeedSize)
	_, _ = rand.Read(seed) // never fails: crypto/rand ends the process instead
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString(base64.StdEncoding.EncodeToString(seed) + "\n")
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// ReadFileKey is [FileKey] for a file that is there.
func ReadFileKey(path string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("%s does not hold 32 bytes in base64", path)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// ParsePublic reads a public key as [Public] writes it.
func ParsePublic(text string) (ed25519.PublicKey, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) != ed25519.PublicKeySize {
		return nil, errors.New("a public key is 32 bytes in base64, as \"turnpike audit key\" prints it")
	}
	return key, nil
}

// Public writes the public half of a key: who has it can check checkpoints, and
// make none.
func Public(key ed25519.PrivateKey) string {
	return base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}
