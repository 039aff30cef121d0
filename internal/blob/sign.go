package blob

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// MaxSigned is how long a signed URL may be valid.
const MaxSigned = time.Hour

// SignedPath begins the path of signed URLs.
const SignedPath = "/v1/blobs/"

var (
	// ErrSignature reports a URL that the gateway has not signed, or that was changed.
	ErrSignature = errors.New("the signature of the URL is not valid")
	// ErrExpired reports a signed URL whose time is over.
	ErrExpired = errors.New("the signed URL has expired")
)

// Ref names a file of an org.
type Ref struct {
	Org       string
	CreatedAt time.Time // of the org: URLs of an org that was deleted are void, also if there is another with its id
	Bucket    string
	Path      string
}

// Millis returns the time in Unix milliseconds, by which orgs with the same id differ; 0 for the zero time.
func Millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Signer signs and checks URLs. Anyone who has such a URL gets the file.
type Signer struct{ key []byte }

// NewSigner returns a Signer with a random key.
func NewSigner(key []byte) *Signer { return &Signer{key} }

// encoding is that of ids and signatures.
func encoding() *base64.Encoding { return base64.RawURLEncoding.Strict() }

// Sign returns the path and the query of a URL for requests with the method, which is valid until a time.
func (s *Signer) Sign(r Ref, method string, until time.Time) string {
	id := encoding().EncodeToString(r.text())
	exp := strconv.FormatInt(until.Unix(), 10)
	return SignedPath + id + "?" + url.Values{"exp": {exp}, "sig": {encoding().EncodeToString(s.sum(r.Org, id, exp, method))}}.Encode()
}

// Check returns what a signed URL names. The error is ErrSignature or ErrExpired.
func (s *Signer) Check(id, exp, sig, method string, now time.Time) (Ref, error) {
	text, err := encoding().DecodeString(id)
	if err != nil {
		return Ref{}, ErrSignature
	}
	r, ok := refOf(text)
	given, err := encoding().DecodeString(sig)
	if !ok || err != nil || !hmac.Equal(given, s.sum(r.Org, id, exp, method)) {
		return Ref{}, ErrSignature
	}
	seconds, err := strconv.ParseInt(exp, 10, 64)
	until := time.Unix(seconds, 0)
	switch {
	case err != nil || until.Sub(now) > MaxSigned+time.Minute: // nobody signs such a one
		return Ref{}, ErrSignature
	case !now.Before(until):
		return Ref{}, fmt.Errorf("%w: it was valid until %s", ErrExpired, until.UTC().Format(time.RFC3339))
	}
	return r, nil
}

// sum authenticates all that a URL says. No part contains a line feed.
func (s *Signer) sum(org, id, exp, method string) []byte {
	h := hmac.New(sha256.New, s.key)
	_, _ = fmt.Fprintf(h, "turnpike signed url 1\n%q\n%s\n%q\n%q\n", org, id, exp, method)
	return h.Sum(nil)
}

// text returns the JSON list that an id is.
func (r Ref) text() []byte {
	text, _ := json.Marshal([]any{r.Org, Millis(r.CreatedAt), r.Bucket, r.Path}) // texts and a number
	return text
}

func refOf(text []byte) (Ref, bool) {
	var r Ref
	var at int64
	list := []any{&r.Org, &at, &r.Bucket, &r.Path}
	if json.Unmarshal(text, &list) != nil || len(list) != 4 {
		return Ref{}, false
	}
	if at != 0 {
		r.CreatedAt = time.UnixMilli(at)
	}
	return r, true
}
