// Package s3 keeps the files of buckets in a service with the API of Amazon S3.
//
//	Bucket ─► client of the AWS SDK ─► guarded client of egress ─► service
//	             signs each request       checks each address
//
// The key of a file in the service is the prefix of the bucket and the path of the file. The SHA-256 of the content is
// in the metadata of the object, and is compared when the file is read to its end. Objects that others have put there
// have none; those whose keys are no paths of [blob.CheckPath] are not files.
package s3

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Options configure a Store. Client and Secret are required.
type Options struct {
	Client *http.Client // a guarded client of package egress: orgs name the endpoints
	// Secret resolves a reference of the settings of an org.
	Secret func(ctx context.Context, orgID, reference string) (string, error)
	Log    *slog.Logger
	Now    func() time.Time // nil = time.Now
}

// Store opens buckets. It is safe for concurrent use.
type Store struct {
	o Options

	mu     sync.Mutex
	counts map[string]*counted // of buckets with a quota, by what they are
}

// New returns a Store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{o: o, counts: map[string]*counted{}}
}

// attempts is how often a request is sent at most.
const attempts = 3

// Bucket returns a bucket of an org. The error is a *[blob.RefusedError] if a credential cannot be resolved.
func (s *Store) Bucket(ctx context.Context, orgID string, settings org.Bucket) (*Bucket, error) {
	var credentials aws.Credentials
	for _, one := range []struct {
		setting, reference string
		into               *string
	}{{"access_key", settings.AccessKey, &credentials.AccessKeyID}, {"secret_key", settings.SecretKey, &credentials.SecretAccessKey}} {
		value, err := s.o.Secret(ctx, orgID, one.reference)
		if err != nil {
			return nil, &blob.RefusedError{Why: fmt.Sprintf("%s of the bucket %s cannot be resolved", one.setting, settings.Name), Setting: one.setting + " of the bucket", Err: err}
		}
		*one.into = value
	}
	options := s3.Options{
		Region:       settings.Region,
		HTTPClient:   bounded{s.o.Client},
		UsePathStyle: true,
		Credentials:  aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return credentials, nil }),
		Logger:       logging.Nop{}, RetryMaxAttempts: attempts,
		RequestChecksumCalculation: aws.RequestChecksumCalculationWhenRequired, ResponseChecksumValidation: aws.ResponseChecksumValidationWhenRequired,
		DisableS3ExpressSessionAuth: aws.Bool(true), DisableLogOutputChecksumValidationSkipped: true,
	}
	if options.Region == "" {
		options.Region = org.DefaultRegion
	}
	if settings.Endpoint != "" {
		options.BaseEndpoint = &settings.Endpoint
	}
	b := &Bucket{client: s3.New(options), settings: settings, now: s.o.Now}
	if settings.Quota > 0 {
		b.counted = s.counted(orgID, settings)
	}
	return b, nil
}

// counted returns what is counted of a bucket, the same for all that name the same place.
func (s *Store) counted(orgID string, b org.Bucket) *counted {
	key := fmt.Sprintf("%q %q %q %q", orgID, b.Endpoint, b.Bucket, b.Prefix)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts[key]
	if c == nil {
		c = newCounted()
		s.counts[key] = c
	}
	return c
}

// maxAnswer is how much of an answer other than a file is read, in bytes: a list has 1,000 keys of 1,024 bytes.
const maxAnswer = 8 << 20

// bounded is a client that reads no more of an answer than it may have.
type bounded struct{ client *http.Client }

// downloads marks the context of a request whose answer is a file.
type downloads struct{}

// Do implements the SDK's HTTPClient.
func (b bounded) Do(r *http.Request) (*http.Response, error) {
	resp, err := b.client.Do(r)
	if err == nil && (resp.StatusCode/100 != 2 || r.Context().Value(downloads{}) == nil) {
		resp.Body = &limitedBody{resp.Body, maxAnswer}
	}
	return resp, err
}

// limitedBody fails when more than so many bytes are read.
type limitedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (l *limitedBody) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return n, err
}
