package audit

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
)

// Checkpoint says, signed, that the chain of an org had this row at its end, or
// that retention has removed everything up to it, or that a loss of everything
// behind it was accepted.
type Checkpoint struct {
	Org       string
	Number    int64
	Hash      Hash
	At        int64 // Unix milliseconds
	Cut       bool  // the rows up to Number are gone, and are to be
	Lost      bool  // the rows behind Number were lost, and the operator went on without them
	Signature []byte
}

const (
	headDomain = "turnpike audit checkpoint v1\n"
	cutDomain  = "turnpike audit cut v1\n"
	lostDomain = "turnpike audit loss v1\n"
)

// Sign returns the checkpoint with its signature (Ed25519).
func (c Checkpoint) Sign(key ed25519.PrivateKey) Checkpoint {
	c.Signature = ed25519.Sign(key, c.message())
	return c
}

// errSignature says that a checkpoint was not made with the gateway's key.
var errSignature = errors.New("the signature does not match the public key")

// Check returns an error unless the checkpoint was signed with the key that key
// belongs to.
func (c Checkpoint) Check(key ed25519.PublicKey) error {
	if !ed25519.Verify(key, c.message(), c.Signature) {
		return fmt.Errorf("checkpoint at row %d: %w", c.Number, errSignature)
	}
	return nil
}

func (c Checkpoint) message() []byte {
	domain := headDomain
	switch {
	case c.Lost:
		domain = lostDomain
	case c.Cut:
		domain = cutDomain
	}
	msg := append([]byte(domain), c.Hash[:]...)
	msg = binary.BigEndian.AppendUint64(msg, uint64(c.Number))
	msg = binary.BigEndian.AppendUint64(msg, uint64(c.At))
	return append(msg, c.Org...)
}
