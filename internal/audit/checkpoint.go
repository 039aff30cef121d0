package audit

import (
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
)

// Checkpoint is a signed statement about the chain of an org: that its last row was
// Number with this Hash; or, with Pruned, that retention removed the rows up to
// Number; or, with LossAccepted, that the operator accepted the loss of the rows after it.
type Checkpoint struct {
	Org          string
	Number       int64
	Hash         Hash
	At           int64 // Unix milliseconds
	Pruned       bool  // rows up to Number were removed by retention
	LossAccepted bool  // rows after Number were lost, and the operator accepted it
	Signature    []byte
}

// Signature domains, one per meaning of a checkpoint. They are part of the stored
// format.
const (
	headDomain   = "turnpike audit checkpoint v1\n"
	prunedDomain = "turnpike audit cut v1\n"
	lossDomain   = "turnpike audit loss v1\n"
)

// Sign returns the checkpoint with an Ed25519 signature (RFC 8032).
func (c Checkpoint) Sign(key ed25519.PrivateKey) Checkpoint {
	c.Signature = ed25519.Sign(key, c.message())
	return c
}

// errSignature reports a checkpoint that was not signed with the gateway's key.
var errSignature = errors.New("the signature does not match the public key")

// Check returns an error unless the checkpoint was signed with the private key of
// key.
func (c Checkpoint) Check(key ed25519.PublicKey) error {
	if !ed25519.Verify(key, c.message(), c.Signature) {
		return fmt.Errorf("checkpoint at row %d: %w", c.Number, errSignature)
	}
	return nil
}

func (c Checkpoint) message() []byte {
	domain := headDomain
	switch {
	case c.LossAccepted:
		domain = lossDomain
	case c.Pruned:
		domain = prunedDomain
	}
	msg := append([]byte(domain), c.Hash[:]...)
	msg = binary.BigEndian.AppendUint64(msg, uint64(c.Number))
	msg = binary.BigEndian.AppendUint64(msg, uint64(c.At))
	return append(msg, c.Org...)
}
