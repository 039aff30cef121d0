package bedrock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// service is the name of the service in signatures.
const service = "bedrock"

// Credentials returns what signs a request. It is called for every request, from many
// goroutines, and returns credentials that have not expired. Its error names what is
// missing.
type Credentials func(context.Context) (aws.Credentials, error)

// Static returns credentials that do not change. The session token may be empty.
func Static(accessKeyID, secretAccessKey, sessionToken string) Credentials {
	c := aws.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey, SessionToken: sessionToken}
	return func(context.Context) (aws.Credentials, error) { return c, nil }
}

type signer struct {
	credentials Credentials
	region      string
}

// sign signs host, content type, body and time. Other fields of the header can be changed
// on the way.
func (s signer) sign(ctx context.Context, r *http.Request, body []byte) error {
	c, err := s.credentials(ctx)
	if err != nil {
		return err
	}
	signed := *r
	signed.Header = http.Header{"Content-Type": r.Header["Content-Type"]}
	sum := sha256.Sum256(body)
	err = v4.NewSigner().SignHTTP(ctx, c, &signed, hex.EncodeToString(sum[:]), service, s.region, time.Now())
	if err != nil {
		return err
	}
	for name, values := range signed.Header {
		r.Header[name] = values
	}
	return nil
}
