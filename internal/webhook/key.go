package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// The headers of a signed request.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// secretPrefix starts the text of every secret. What follows is base64.
const secretPrefix = "whsec_"

// Sizes of a key, in bytes. The specification has the range.
const (
	minKey = 24
	newKey = 32
	maxKey = 64
)

// ErrSecret reports a text that is not a secret of Standard Webhooks.
var ErrSecret = fmt.Errorf("the webhook secret is not valid: use %s followed by the base64 of %d to %d random bytes",
	secretPrefix, minKey, maxKey)

// Key is the key of a secret. The zero Key is not valid; use ParseSecret.
type Key struct{ bytes []byte }

// NewSecret returns the text of a new random secret.
func NewSecret() secret.Value {
	b := make([]byte, newKey)
	_, _ = rand.Read(b) // never returns an error: it ends the process instead
	return secret.NewValue(secretPrefix + base64.StdEncoding.EncodeToString(b))
}

// ParseSecret returns the key of a secret, or ErrSecret. The error does not
// contain the secret.
func ParseSecret(v secret.Value) (Key, error) {
	text, found := strings.CutPrefix(v.Reveal(), secretPrefix)
	if !found || strings.ContainsAny(text, "\r\n") { // the decoder would skip line breaks
		return Key{}, ErrSecret
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) < minKey || len(b) > maxKey {
		return Key{}, ErrSecret
	}
	return Key{b}, nil
}

// Format hides the key from every verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// Sign sets the three headers of a request with the given id and body that is
// sent at the given time. There is one signature for each key: during a rotation
// the new and the previous one, so that the receiver may have either.
//
// It returns an error if there is no key, if a key is the zero Key, or if the id
// is empty or contains a full stop, which separates the signed parts.
func Sign(h http.Header, id string, at time.Time, body []byte, keys ...Key) error {
	if id == "" || strings.ContainsAny(id, ". \r\n") {
		return fmt.Errorf("webhook id %q is not valid: it is empty or contains a full stop or white space", id)
	}
	if len(keys) == 0 {
		return errors.New("webhook " + id + " has no key to sign with")
	}
	stamp := strconv.FormatInt(at.Unix(), 10)
	signatures := make([]string, len(keys))
	for i, k := range keys {
		if len(k.bytes) == 0 {
			return fmt.Errorf("webhook %s: %w", id, ErrSecret)
		}
		mac := hmac.New(sha256.New, k.bytes)
		mac.Write([]byte(id + "." + stamp + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, stamp)
	h.Set(HeaderSignature, strings.Join(signatures, " "))
	return nil
}
