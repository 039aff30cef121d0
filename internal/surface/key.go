package surface

import (
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// keyHeader is the request header that makes a request one run, however often
// it is sent.
const keyHeader = "Idempotency-Key"

// maxKey is the most characters of a key; keys are stored with their runs.
const maxKey = 255

// SubmitKey reads the client's key for a request to the named surface; nil without one.
func SubmitKey(header http.Header, principal, surface string, body []byte) (*journal.SubmitKey, error) {
	values := header.Values(keyHeader)
	if len(values) == 0 {
		return nil, nil
	}
	if len(values) > 1 || !validKey(values[0]) {
		return nil, fault.New(fault.Invalid, "invalid_idempotency_key",
			"send one %s of 1 to %d printable ASCII characters", keyHeader, maxKey).In(keyHeader)
	}
	return &journal.SubmitKey{Principal: principal, Key: values[0], Hash: requestHash(surface, body)}, nil
}

func validKey(key string) bool {
	hidden := func(c rune) bool { return c < ' ' || c > '~' }
	return key != "" && len(key) <= maxKey && !slices.ContainsFunc([]rune(key), hidden)
}

// Hash returns the hash of a JSON value: the order of members and the space between them do not
// count.
func Hash(value []byte) string { return requestHash("", value) }

// requestHash returns the hash of what a body says to a surface: the order of members
// and the space between them do not count. Hashes are stored, so later versions must
// compute the same.
func requestHash(surface string, body []byte) string {
	canon := jsontext.Value(slices.Clone(body))
	if canon.Canonicalize(jsontext.CanonicalizeRawInts(false)) != nil {
		canon = body // repeated names, say: the bytes themselves are compared
	}
	sum := sha256.Sum256(append([]byte(surface+"\x00"), canon...))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
