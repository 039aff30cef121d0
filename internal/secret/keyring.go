package secret

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
)

// The errors that a Keyring wraps.
var (
	// ErrMasterKey is wrapped by the error for a secret that was sealed under a master
	// key that the Keyring does not have.
	ErrMasterKey = errors.New("sealed under another master key: set master_key_previous to that key, or store the secret again")
	// ErrDamaged is wrapped by the error for bytes that were not sealed for this org
	// and name.
	ErrDamaged = errors.New("the stored secret is damaged, or was sealed for another org or name: store it again")
)

// Keyring encrypts ("seals") secrets for the store and decrypts ("opens") them. It is
// safe for concurrent use.
//
// Each secret has its own random data key. The sealed form is, with sizes in bytes:
//
//	version │ id of the master key │ data key under the master key │ value under the data key
//	1       │ 8                    │ nonce 12, key 32, tag 16      │ nonce 12, value, tag 16
//
// Both layers are AES-256-GCM with random 96-bit nonces. A data key encrypts one value
// once, so no nonce repeats under it. Its only copy is in the row, so deleting the row
// destroys it. The version, the org and the name are associated data of both layers: a
// row that is copied to another org or name does not open.
type Keyring struct {
	current  *master
	previous *master // only opens; nil = none
}

// The sealed form: its version, and sizes in bytes.
const (
	sealVersion = 1
	idSize      = 8
	nonceSize   = 12
	tagSize     = 16
	wrappedSize = nonceSize + masterSize + tagSize
	headSize    = 1 + idSize
)

// NewKeyring returns a Keyring with a master key: 32 random bytes in base64 or
// hexadecimal. The error for an invalid key says how to generate one.
func NewKeyring(key Value) (*Keyring, error) {
	m, err := parseMaster(key)
	if err != nil {
		return nil, err
	}
	return &Keyring{current: m}, nil
}

// WithPrevious returns a Keyring that also opens secrets sealed under the previous
// master key. It seals under the current one only.
func (k *Keyring) WithPrevious(previous Value) (*Keyring, error) {
	m, err := parseMaster(previous)
	switch {
	case err != nil:
		return nil, err
	case m.id == k.current.id:
		return nil, errors.New("is the same as master_key; remove it")
	}
	return &Keyring{current: k.current, previous: m}, nil
}

// Seal returns v sealed for the org and the name.
func (k *Keyring) Seal(org, name string, v Value) ([]byte, error) {
	var data [masterSize]byte
	_, _ = rand.Read(data[:]) // never returns an error: it ends the process instead
	out, err := k.wrap(org, name, data)
	if err != nil {
		return nil, err
	}
	return encrypt(out, data, associatedData("value", org, name), []byte(v.Reveal()))
}

// Open returns the value that was sealed for the org and the name. The error wraps
// [ErrMasterKey], or [ErrDamaged], or reports an unknown version of the sealed form.
func (k *Keyring) Open(org, name string, sealed []byte) (Value, error) {
	data, err := k.unwrap(org, name, sealed)
	if err != nil {
		return Value{}, err
	}
	value, err := decrypt(data, associatedData("value", org, name), sealed[headSize+wrappedSize:])
	if err != nil {
		return Value{}, err
	}
	return NewValue(string(value)), nil
}

// Renew returns the secret with its data key sealed under the current master key. It
// does not decrypt the value. It returns sealed unchanged if it already is under the
// current key. Errors are those of Open.
func (k *Keyring) Renew(org, name string, sealed []byte) ([]byte, error) {
	data, err := k.unwrap(org, name, sealed)
	if err != nil || bytes.Equal(sealed[1:headSize], k.current.id[:]) {
		return sealed, err
	}
	out, err := k.wrap(org, name, data)
	if err != nil {
		return nil, err
	}
	return append(out, sealed[headSize+wrappedSize:]...), nil
}

// wrap returns the start of a sealed secret, up to and including its data key.
func (k *Keyring) wrap(org, name string, data [masterSize]byte) ([]byte, error) {
	head := append([]byte{sealVersion}, k.current.id[:]...)
	return encrypt(head, k.current.key, associatedData("key", org, name), data[:])
}

// unwrap returns the data key of a sealed secret.
func (k *Keyring) unwrap(org, name string, sealed []byte) (data [masterSize]byte, err error) {
	switch {
	case len(sealed) < headSize+wrappedSize+nonceSize+tagSize:
		return data, ErrDamaged
	case sealed[0] != sealVersion:
		return data, fmt.Errorf("sealed by another version of the program (form %d)", sealed[0])
	}
	m := k.find(sealed[1:headSize])
	if m == nil {
		return data, ErrMasterKey
	}
	key, err := decrypt(m.key, associatedData("key", org, name), sealed[headSize:headSize+wrappedSize])
	if err != nil {
		return data, err
	}
	return [masterSize]byte(key), nil
}

// find returns the master key with the id, or nil.
func (k *Keyring) find(id []byte) *master {
	for _, m := range []*master{k.current, k.previous} {
		if m != nil && bytes.Equal(m.id[:], id) {
			return m
		}
	}
	return nil
}

// associatedData returns the associated data of a layer. Each part has its length in front, so
// that ("ab", "c") and ("a", "bc") differ.
func associatedData(layer, org, name string) []byte {
	out := []byte{sealVersion}
	for _, part := range []string{"turnpike secret", layer, org, name} {
		out = binary.BigEndian.AppendUint64(out, uint64(len(part)))
		out = append(out, part...)
	}
	return out
}

// encrypt appends a random nonce and the encrypted text to out. with is the associated
// data.
func encrypt(out []byte, key [masterSize]byte, with, text []byte) ([]byte, error) {
	gcm, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce)
	return gcm.Seal(append(out, nonce...), nonce, text, with), nil
}

func decrypt(key [masterSize]byte, with, sealed []byte) ([]byte, error) {
	gcm, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	text, err := gcm.Open(nil, sealed[:nonceSize], sealed[nonceSize:], with)
	if err != nil {
		return nil, ErrDamaged // the cause, "message authentication failed", adds nothing
	}
	return text, nil
}

func newGCM(key [masterSize]byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}
