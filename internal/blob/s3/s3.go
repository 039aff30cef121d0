// Package s3 keeps the files of buckets in a service with the API of Amazon S3.
//
//	Bucket ─► client ─────────────────► guarded client of egress ─► service
//	            signs each request and     checks each address
//	            sends it up to 3 times
//
// The key of a file in the service is the prefix of the bucket and the path of the file. The SHA-256 of the content is
// in the metadata of the object, and is compared when the file is read to its end. Objects that others have put there
// have none; those whose keys are no paths of [blob.CheckPath] are not files.
package s3

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

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
	o    Options
	wait func(context.Context, time.Duration) error // between attempts

	mu     sync.Mutex
	counts map[string]*counted // of buckets with a quota, by what they are
}

// New returns a Store.
func New(o Options) *Store {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{o: o, wait: sleep, counts: map[string]*counted{}}
}

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
	region := cmp.Or(settings.Region, org.DefaultRegion)
	endpoint, err := url.Parse(endpointOf(settings, region))
	if err != nil {
		return nil, &blob.RefusedError{Why: "the endpoint of the bucket is not a URL", Setting: "endpoint of the bucket", Err: err}
	}
	c := &client{
		http: s.o.Client, bucket: under(url.URL{Scheme: endpoint.Scheme, Host: endpoint.Host, Path: endpoint.Path, RawPath: endpoint.RawPath}, settings.Bucket),
		region: region, credentials: credentials, now: time.Now, wait: s.wait,
	}
	b := &Bucket{client: c, settings: settings, now: s.o.Now}
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
