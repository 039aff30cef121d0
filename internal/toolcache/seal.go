package toolcache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// The domains separate the two hashes from each other and from those of later
// versions.
const (
	nameDomain = "turnpike tool cache name 1"
	sealDomain = "turnpike tool cache seal 1"
)

// nameOf returns the name of a call's entry. It does not depend on the pepper, so that
// entries of an earlier pepper are found and deleted.
func nameOf(k run.CacheKey) Name {
	h := sha256.New()
	writeParts(h, nameDomain, k.Org, k.Server, k.Tool, k.Digest, k.Arguments)
	return Name(h.Sum(nil))
}

// seal returns the MAC of an entry with the result of the call k.
func (c *Cache) seal(k run.CacheKey, e Entry) []byte {
	h := hmac.New(sha256.New, c.pepper)
	until := binary.BigEndian.AppendUint64(nil, uint64(e.ExpiresAt))
	writeParts(h, sealDomain, k.Org, k.Server, k.Tool, k.Digest, k.Arguments, string(until), e.Value)
	return h.Sum(nil)
}

// sealValid reports whether e is an entry of the call k that this cache wrote.
func (c *Cache) sealValid(k run.CacheKey, e Entry) bool { return hmac.Equal(e.MAC, c.seal(k, e)) }

// writeParts writes each part after its length, so that different lists of parts never have
// the same encoding.
func writeParts(h hash.Hash, parts ...string) {
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
}
