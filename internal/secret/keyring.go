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

// The errors of a Keyring, wrapped.
var (
	// ErrMasterKey says that a secret was sealed under a master key that is not
	// at hand.
	ErrMasterKey = errors.New("it was sealed under another master key: set master_key_previous to that key, or store the secret again")
	// ErrDamaged says that what is stored is not what was sealed for this org
	// and name.
	ErrDamaged = errors.New("what is stored is damaged, or was sealed for another org or name: store the secret again")
)

// Keyring seals secrets for the store and opens them again. It is safe for
// concurrent use.
//
// Each secret has a data key of its own, drawn when it is sealed:
//
//	version │ id of the master key │ data key under the master key │ value under the data key
//	1       │ 8                    │ nonce 12, key 32, tag 16      │ nonce 12, value, tag 16
//
// Both layers are AES-256-GCM with random nonces. A data key encrypts one value,
// once, so that no nonce can repeat under it; and a row needs nothing but the
// master key, so that to delete it is to forget its key. Both layers are bound
// to the version, the org and the name: a row that was moved does not open.
type Keyring struct {
	now      *master
	previous *master // opens and never seals; nil = none
}

// Parts of what is sealed.
const (
	sealVersion = 1
	idSize      = 8
	nonceSize   = 12
	tagSize     = 16
	wrappedSize = nonceSize + masterSize + tagSize
	headSize    = 1 + idSize
)

// NewKeyring returns a Keyring that seals and opens under a master key: 32
// random bytes, in base64 or in hexadecimal. The error about any other says how
// to make one.
func NewKeyring(key Value) (*Keyring, error) {
	m, err := parseMaster(key)
	if err != nil {
		return nil, err
	}
	return &Keyring{now: m}, nil
}

// WithPrevious returns a Keyring that also opens what was sealed under the
// master key that was there before. It never seals under it.
func (k *Keyring) WithPrevious(previous Value) (*Keyring, error) {
	m, err := parseMaster(previous)
	switch {
	case err != nil:
		return nil, err
	case m.id == k.now.id:
		return nil, errors.New("is the same as master_key; leave it out")
	}
	return &Keyring{now: k.now, previous: m}, nil
}

// Seal returns v sealed for the org and the name.
func (k *Keyring) Seal(org, name string, v Value) ([]byte, error) {
	var data [masterSize]byte
	_, _ = rand.Read(data[:]) // never fails: it ends the process instead
	out, err := k.wrap(org, name, data)
	if err != nil {
		return nil, err
	}
	return encrypt(out, data, bound("value", org, name), []byte(v.Reveal()))
}

// Open returns what was sealed for the org and the name, and an error that wraps
// [ErrMasterKey] or [ErrDamaged] for everything else.
func (k *Keyring) Open(org, name string, sealed []byte) (Value, error) {
	data, err := k.unwrap(org, name, sealed)
	if err != nil {
		return Value{}, err
	}
	value, err := decrypt(data, bound("value", org, name), sealed[headSize+wrappedSize:])
	if err != nil {
		return Value{}, err
	}
	return NewValue(string(value)), nil
}

// Renew returns the secret with its data key under the present master key. It
// does not look at the value. It returns sealed itself when there is nothing to do.
func (k *Keyring) Renew(org, name string, sealed []byte) ([]byte, error) {
	data, err := k.unwrap(org, name, sealed)
	if err != nil || bytes.Equal(sealed[1:headSize], k.now.id[:]) {
		return sealed, err
	}
	out, err := k.wrap(org, name, data)
	if err != nil {
		return nil, err
	}
	return append(out, sealed[headSize+wrappedSize:]...), nil
}

// wrap returns the head of a sealed secret with its data key.
func (k *Keyring) wrap(org, name string, data [masterSize]byte) ([]byte, error) {
	head := append([]byte{sealVersion}, k.now.id[:]...)
	return encrypt(head, k.now.key, bound("key", org, name), data[:])
}

func (k *Keyring) unwrap(org, name string, sealed []byte) (data [masterSize]byte, err error) {
	switch {
	case len(sealed) < headSize+wrappedSize+nonceSize+tagSize:
		return data, ErrDamaged
	case sealed[0] != sealVersion:
		return data, fmt.Errorf("it was sealed by another version of the program (form %d)", sealed[0])
	}
	m := k.find(sealed[1:headSize])
	if m == nil {
		return data, ErrMasterKey
	}
	key, err := decrypt(m.key, bound("key", org, name), sealed[headSize:headSize+wrappedSize])
	if err != nil {
		return data, err
	}
	return [masterSize]byte(key), nil
}

// find returns the master key with the id, nil for none.
func (k *Keyring) find(id []byte) *master {
	for _, m := range []*master{k.now, k.previous} {
		if m != nil && bytes.Equal(m.id[:], id) {
			return m
		}
	}
	return nil
}

// bound is what a layer is bound to. The lengths keep ("ab", "c") apart from
// ("a", "bc").
func bound(layer, org, name string) []byte {
	out := []byte{sealVersion}
	for _, part := range []string{"turnpike secret", layer, org, name} {
		out = binary.BigEndian.AppendUint64(out, uint64(len(part)))
		out = append(out, part...)
	}
	return out
}

// encrypt appends a nonce and the encrypted text to out.
func encrypt(out []byte, key [masterSize]byte, with, text []byte) ([]byte, error) {
	gcm, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // never fails: it ends the process instead
	return gcm.Seal(append(out, nonce...), nonce, text, with), nil
}

func decrypt(key [masterSize]byte, with, sealed []byte) ([]byte, error) {
	gcm, err := newGCM(key)
	if err != nil {
		return nil, err
	}
	text, err := gcm.Open(nil, sealed[:nonceSize], sealed[nonceSize:], with)
	if err != nil {
		return nil, ErrDamaged // what it says by itself helps nobody
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
