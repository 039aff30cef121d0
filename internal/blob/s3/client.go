package s3

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go/encoding/httpbinding"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// client makes the requests for one bucket of a service.
type client struct {
	http        *http.Client
	bucket      url.URL // in path style: /bucket, /bucket/key
	region      string
	credentials aws.Credentials
	now         func() time.Time                           // of signatures
	wait        func(context.Context, time.Duration) error // between attempts
}

// attempts is how often a request is sent at most.
const attempts = 3

const (
	maxAnswer = 8 << 20  // how much of a list is read, in bytes: it has at most 1,000 keys of 1,024 bytes
	maxError  = 64 << 10 // how much of an error is read, in bytes
)

// headerDigest has the SHA-256 of an object, in hex. It is in the metadata of the object.
const headerDigest = "X-Amz-Meta-Turnpike-Sha256"

// noDigest is the SHA-256 of a request without a body.
const noDigest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// endpointOf returns the URL of the service of a bucket.
func endpointOf(b org.Bucket, region string) string {
	if b.Endpoint != "" {
		return b.Endpoint
	}
	for _, partition := range []struct{ region, domain string }{
		{"cn-", "amazonaws.com.cn"}, {"eusc-", "amazonaws.eu"}, {"us-iso-", "c2s.ic.gov"}, {"us-isob-", "sc2s.sgov.gov"},
		{"us-isof-", "csp.hci.ic.gov"}, {"eu-isoe-", "cloud.adc-e.uk"},
	} {
		if strings.HasPrefix(region, partition.region) {
			return "https://s3." + region + "." + partition.domain
		}
	}
	return "https://s3." + region + ".amazonaws.com"
}

// under returns the URL of a name below u. The path is escaped once, as signatures want it.
func under(u url.URL, name string) url.URL {
	raw := strings.TrimRight(u.EscapedPath(), "/") + "/" + httpbinding.EscapePath(name, false)
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/")+"/"+name, raw
	return u
}

// call is one request. Only Put has a body.
type call struct {
	method string
	key    string // "" = the bucket itself
	query  url.Values

	body   io.ReadSeeker // nil = none; read from its beginning by each attempt
	size   int64         // of the body
	digest string        // SHA-256 of the body, in hex
}

// do sends a request, again after failures that may pass: all calls may be repeated. The caller closes the body of the
// answer, which is a success. Any other answer is a *[serviceError].
func (c *client) do(ctx context.Context, r call) (*http.Response, error) {
	for n := 1; ; n++ {
		answer, err := c.send(ctx, r)
		if err == nil || n == attempts || ctx.Err() != nil || !temporary(err) {
			return answer, err
		}
		pause := 200 * time.Millisecond << (2 * (n - 1))
		if err := c.wait(ctx, pause/2+rand.N(pause/2)); err != nil { //nolint:gosec // spreads repetitions
			return nil, err
		}
	}
}

// temporary reports whether the next attempt may succeed. An error that is not of the service is one of the connection.
func temporary(err error) bool {
	var fatal tool.Blocked
	var service *serviceError
	switch {
	case errors.As(err, &fatal): // of the outbound policy
		return false
	case !errors.As(err, &service):
		return true
	}
	switch service.code {
	case "SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable":
		return true
	}
	switch service.status {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return true
	}
	return false
}

// sleep waits, or returns the error of the context.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// send makes one attempt.
func (c *client) send(ctx context.Context, r call) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, r.method, "", nil)
	if err != nil {
		return nil, err
	}
	u := c.bucket
	if r.key != "" {
		u = under(u, r.key)
	}
	u.RawQuery = r.query.Encode()
	request.URL, request.Host = &u, u.Host
	digest := noDigest
	if r.body != nil {
		if _, err := r.body.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		body := &sending{from: r.body}
		defer body.stop()
		request.Body, request.ContentLength, digest = body, r.size, r.digest
		if r.size == 0 {
			request.Body = http.NoBody // else the transport looks for a first byte
		}
		request.Header.Set("Content-Type", "application/octet-stream")
		request.Header.Set(headerDigest, digest)
	}
	// Services other than Amazon's refuse the checksum headers that the SDK sends. This one is a part of the signature.
	request.Header.Set("X-Amz-Content-Sha256", digest)
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(ctx, c.credentials, request, digest, "s3", c.region, c.now()); err != nil {
		return nil, err
	}
	answer, err := c.http.Do(request)
	var fatal tool.Blocked
	switch {
	case err != nil && answer != nil && !errors.As(err, &fatal): // a redirect, which the client does not follow
		return nil, &serviceError{status: answer.StatusCode, region: regionIn(answer.Header.Get(headerRegion))}
	case err != nil || answer.StatusCode/100 == 2:
		return answer, err
	}
	return nil, readError(r.method, answer)
}

// headerRegion is the field in which a service says where a bucket is.
const headerRegion = "X-Amz-Bucket-Region"

// regionIn returns a text if it can be the name of a region, and "" otherwise.
func regionIn(text string) string {
	const most = 40
	if len(text) > most || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return ""
	}
	return text
}

// sending is the body of one attempt. A transport may read it after it has returned an answer, until it closes it; stop
// prevents that, so that the next attempt or the caller can use what is below.
type sending struct {
	mu   sync.Mutex
	from io.Reader // nil = stopped
}

// Read implements io.Reader.
func (s *sending) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.from == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	return s.from.Read(p)
}

// Close implements io.Closer.
func (s *sending) Close() error {
	s.stop()
	return nil
}

func (s *sending) stop() {
	s.mu.Lock()
	s.from = nil
	s.mu.Unlock()
}

// serviceError is an answer that is not a success.
type serviceError struct {
	status int
	code   string // "" = the answer has none: no S3 service has sent it
	region string // where the bucket is, if the answer says so
}

func (e *serviceError) Error() string { return fmt.Sprintf("status %d, code %.100q", e.status, e.code) }

// readError returns the error of an answer, and closes it.
func readError(method string, answer *http.Response) error {
	defer finish(answer)
	e := &serviceError{status: answer.StatusCode, region: regionIn(answer.Header.Get(headerRegion))}
	if method == http.MethodHead { // its answer has no body
		e.code = strings.ReplaceAll(http.StatusText(answer.StatusCode), " ", "")
		return e
	}
	var document struct {
		XMLName xml.Name `xml:"Error"`
		Code    string   `xml:"Code"`
		Region  string   `xml:"Region"` // of AuthorizationHeaderMalformed
	}
	if xml.NewDecoder(io.LimitReader(answer.Body, maxError)).Decode(&document) == nil {
		e.code, e.region = document.Code, cmp.Or(e.region, regionIn(document.Region))
	}
	return e
}

// finish closes an answer, after its end if that is near: only then is the connection used again.
func finish(answer *http.Response) {
	_, _ = io.CopyN(io.Discard, answer.Body, maxError)
	_ = answer.Body.Close()
}

// errNotS3 reports an answer that is not a list of objects.
var errNotS3 = errors.New("the answer is not a ListBucketResult")

// listing is a page of a list of objects.
type listing struct {
	XMLName  xml.Name `xml:"ListBucketResult"`
	Encoding string   `xml:"EncodingType"`
	More     bool     `xml:"IsTruncated"`
	Next     string   `xml:"NextContinuationToken"`
	Objects  []struct {
		Key      string    `xml:"Key"`
		Size     int64     `xml:"Size"`
		Modified time.Time `xml:"LastModified"`
	} `xml:"Contents"`
}

// list returns the objects whose keys begin with prefix, after a key, from where an earlier page has ended.
func (c *client) list(ctx context.Context, prefix, after, next string) (listing, error) {
	// Without the encoding, a key with a control character makes the answer invalid XML.
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {prefix}}
	if after != "" {
		query.Set("start-after", after)
	}
	if next != "" {
		query.Set("continuation-token", next)
	}
	var page listing
	answer, err := c.do(ctx, call{method: http.MethodGet, query: query})
	if err != nil {
		return page, err
	}
	defer finish(answer)
	err = xml.NewDecoder(io.LimitReader(answer.Body, maxAnswer)).Decode(&page)
	var syntax *xml.SyntaxError
	var other xml.UnmarshalError
	switch {
	case errors.As(err, &syntax), errors.As(err, &other), errors.Is(err, io.EOF):
		return page, errNotS3
	case err != nil:
		return page, err
	case page.Encoding != "url": // a service may ignore it
		return page, nil
	}
	for i := range page.Objects {
		if key, err := url.QueryUnescape(page.Objects[i].Key); err == nil {
			page.Objects[i].Key = key
		}
	}
	return page, nil
}
