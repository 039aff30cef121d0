package upstreamtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/script"
)

// The credentials that a strict [Upstream] accepts on Bedrock, and its region. They are
// those of AWS's documentation of signatures.
const (
	AWSAccessKeyID     = "AKIDEXAMPLE"
	AWSSecretAccessKey = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
	AWSRegion          = "us-east-1"
	// AWSSessionToken is the only session token that is accepted. A request without one
	// is accepted too.
	AWSSessionToken = "IQoJb3JpZ2luX2VjEXAMPLE//////////wEaCXVzLWVhc3QtMQ=="
	// BedrockAPIKey is the only API key that is accepted in place of a signature.
	BedrockAPIKey = "bedrock-api-key-EXAMPLE"
)

// maxSkew is how far the time of a signature may be from now:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-troubleshooting.html.
const maxSkew = 5 * time.Minute

// deny verifies the signature of a request by AWS's description of Signature Version 4:
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html.
func (*bedrockDialect) deny(r *http.Request, body []byte) *script.Failure {
	denied := func(kind, format string, args ...any) *script.Failure {
		return &script.Failure{Status: http.StatusForbidden, Kind: kind, Message: fmt.Sprintf(format, args...)}
	}
	authorization := r.Header.Get("Authorization")
	if key, ok := strings.CutPrefix(authorization, "Bearer "); ok {
		if key != BedrockAPIKey {
			return denied("AccessDeniedException", "Authentication failed: Please make sure your API Key is valid.")
		}
		return nil
	}
	fields, ok := strings.CutPrefix(authorization, "AWS4-HMAC-SHA256 ")
	if !ok {
		return denied("MissingAuthenticationTokenException", "Missing Authentication Token")
	}
	given := map[string]string{}
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		given[name] = value
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > maxSkew {
		return denied("InvalidSignatureException", "Signature expired: %s is now earlier than the time that is allowed", r.Header.Get("X-Amz-Date"))
	}
	day := at.Format("20060102")
	scope := strings.Join([]string{day, AWSRegion, "bedrock", "aws4_request"}, "/")
	keyID, gotScope, _ := strings.Cut(given["Credential"], "/")
	token := r.Header.Get("X-Amz-Security-Token")
	switch {
	case keyID != AWSAccessKeyID, token != "" && token != AWSSessionToken:
		return denied("UnrecognizedClientException", "The security token included in the request is invalid.")
	case gotScope != scope:
		return denied("InvalidSignatureException", "Credential should be scoped to a valid region and service: %s, not %s", scope, gotScope)
	}
	signed := strings.Split(given["SignedHeaders"], ";")
	for _, name := range mustBeSigned(r) {
		if !slices.Contains(signed, name) {
			return denied("InvalidSignatureException", "'%s' must be a 'SignedHeader' in the AWS Authorization.", name)
		}
	}
	canonical := canonicalRequest(r, signed, body)
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", at.Format("20060102T150405Z"), scope, hexSum([]byte(canonical))}, "\n")
	key := []byte("AWS4" + AWSSecretAccessKey)
	for _, part := range []string{day, AWSRegion, "bedrock", "aws4_request", toSign} {
		key = keyedSum(key, part)
	}
	if !hmac.Equal([]byte(hex.EncodeToString(key)), []byte(given["Signature"])) {
		return denied("InvalidSignatureException", "The request signature we calculated does not match the signature you provided. "+
			"Check your AWS Secret Access Key and signing method. The Canonical String for this request should have been\n'%s'", canonical)
	}
	return nil
}

// mustBeSigned returns the headers without whose signature AWS refuses a request.
func mustBeSigned(r *http.Request) []string {
	names := []string{"host"}
	for name := range r.Header {
		if lower := strings.ToLower(name); strings.HasPrefix(lower, "x-amz-") || lower == "content-type" {
			names = append(names, lower)
		}
	}
	slices.Sort(names)
	return names
}

// canonicalRequest returns what is signed: method, path, query, headers and the sum of the
// body. Every service but S3 escapes the path, as it was sent, once more.
func canonicalRequest(r *http.Request, signed []string, body []byte) string {
	var lines strings.Builder
	for _, name := range signed {
		values := slices.Clone(r.Header.Values(name))
		switch name {
		case "host":
			values = []string{r.Host}
		case "content-length":
			values = []string{strconv.FormatInt(r.ContentLength, 10)}
		}
		for i, v := range values {
			values[i] = strings.Join(strings.Fields(v), " ")
		}
		lines.WriteString(name + ":" + strings.Join(values, ",") + "\n")
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	query := strings.Split(r.URL.RawQuery, "&")
	slices.Sort(query)
	return strings.Join([]string{
		r.Method, escapedOnce(path), strings.Join(query, "&"), lines.String(), strings.Join(signed, ";"), hexSum(body),
	}, "\n")
}

// escapedOnce escapes every byte of a path but "/" and the unreserved characters.
func escapedOnce(path string) string {
	const unreserved = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~/"
	var out strings.Builder
	for _, b := range []byte(path) {
		if strings.IndexByte(unreserved, b) >= 0 {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func keyedSum(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
