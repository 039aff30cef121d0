package toolcache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// The domains keep the two hashes apart from each other and from those that
// later versions make of other things.
const (
	nameDomain = "turnpike tool cache name 1"
	sealDomain = "turnpike tool cache seal 1"
)

// nameOf returns what the result of a call is kept under. There is no pepper in
// it, so that an entry with an old seal is met, and dropped.
func nameOf(k run.CacheKey) Name {
	h := sha256.New()
	write(h, nameDomain, k.Org, k.Server, k.Tool, k.Digest, k.Arguments)
	return Name(h.Sum(nil))
}

// seal returns the MAC of an entry that holds the result of the call.
func (c *Cache) seal(k run.CacheKey, e Entry) []byte {
	h := hmac.New(sha256.New, c.pepper)
	until := binary.BigEndian.AppendUint64(nil, uint64(e.ExpiresAt))
	write(h, sealDomain, k.Org, k.Server, k.Tool, k.Digest, k.Arguments, string(until), e.Value)
	return h.Sum(nil)
}

func (c *Cache) genuine(k run.CacheKey, e Entry) bool { return hmac.Equal(e.MAC, c.seal(k, e)) }

// write writes each part behind its length: no two lists of parts look alike.
func write(h hash.Hash, parts ...string) {
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
}
