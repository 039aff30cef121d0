// Package bedrock makes models of Amazon Bedrock models of an agent. It links the AWS SDK, which no other
// package of the library does.
package bedrock

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/provider/bedrock"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// Options say how Bedrock is called. Region is required. Without APIKey and AccessKeyID, the credentials are
// those that the AWS tools find: in the environment, in files, and from the machine's role.
type Options struct {
	Region string // such as us-east-1

	APIKey string // a Bedrock API key

	AccessKeyID, SecretAccessKey, SessionToken string

	BaseURL string // "" = https://bedrock-runtime.REGION.amazonaws.com

	// HTTPClient makes the requests, with its timeout, which includes the answer; nil = one without a
	// timeout and without a proxy.
	HTTPClient *http.Client
}

// awsTimeout bounds one request of the AWS credential chain.
const awsTimeout = 4 * time.Second

// Model returns a model by its id or that of an inference profile, over the Converse API. It connects to
// nothing, and looks for no credentials before the first call.
func Model(id string, o Options) model.Model {
	transport := egress.ProgramTransport(o.HTTPClient)
	e := wire.Endpoint{
		BaseURL:   cmp.Or(o.BaseURL, "https://bedrock-runtime."+o.Region+".amazonaws.com"),
		Transport: transport,
	}
	with := bedrock.Options{Region: o.Region}
	switch {
	case o.APIKey != "":
		e.APIKey = func(context.Context) (string, error) { return o.APIKey, nil }
	case o.AccessKeyID != "":
		with.Credentials = bedrock.Static(o.AccessKeyID, o.SecretAccessKey, o.SessionToken)
	default:
		out := egress.New(egress.DefaultPolicy(), egress.Options{})
		with.Credentials = bedrock.Chain(o.Region, out.OperatorClient(awsTimeout))
	}
	return named{bedrock.New(e, with), id}
}

// named is a model with its id.
type named struct {
	model.Model
	id string
}

// ModelName implements model.Named.
func (n named) ModelName() (provider, name string) { return "bedrock", n.id }
