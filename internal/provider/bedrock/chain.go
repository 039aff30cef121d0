package bedrock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/smithy-go/logging"
)

const (
	// lookupTimeout is how long a request waits for credentials.
	lookupTimeout = 10 * time.Second
	// refreshBefore is how long before their end credentials are looked up again.
	refreshBefore = 5 * time.Minute
)

// Chain returns the credentials that AWS's own clients would use: environment variables,
// the shared files and their profiles (also SSO and roles), a web identity, and the role
// of the container or the machine. The first request looks them up; Chain itself reads
// nothing. They are looked up again 5 minutes before they expire. client sends all
// requests for credentials, and bounds each of them in time. settings names, for errors, where a
// key of AWS is set otherwise.
func Chain(region string, client *http.Client, settings string) Credentials {
	return (&chain{region: region, client: client, settings: settings}).credentials
}

type chain struct {
	region   string
	client   *http.Client
	settings string

	mu    sync.Mutex // guards what follows
	found aws.CredentialsProvider
}

func (c *chain) credentials(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	provider, err := c.provider(ctx)
	if err != nil {
		return aws.Credentials{}, fmt.Errorf("the AWS configuration cannot be read: %w", err)
	}
	// One lookup serves all requests that wait for it. It goes on if they leave, within the
	// time that client allows.
	found, err := provider.Retrieve(ctx)
	if err != nil {
		return aws.Credentials{}, c.missing(err)
	}
	return found, nil
}

// missing returns the error of a lookup that found nothing.
func (c *chain) missing(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("no answer within %s: %w", lookupTimeout, err)
	}
	return fmt.Errorf("no AWS credentials were found: set %s, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "+
		"or give the machine or the container a role; the last place that was tried: %w", c.settings, err)
}

// provider reads variables and files, once. What it returns keeps credentials until
// shortly before they expire.
func (c *chain) provider(ctx context.Context) (aws.CredentialsProvider, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found != nil {
		return c.found, nil
	}
	loaded, err := config.LoadDefaultConfig(ctx,
		config.WithRegion(c.region),
		config.WithHTTPClient(c.client),
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = c.client }),
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = refreshBefore }),
		config.WithRetryMaxAttempts(2),
		config.WithLogger(logging.Nop{}),
	)
	if err != nil {
		return nil, err
	}
	c.found = loaded.Credentials
	return c.found, nil
}
