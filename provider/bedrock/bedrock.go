// Package bedrock makes models of Amazon Bedrock models of an agent. It links the AWS SDK, which no other
// package of the library does.
package bedrock

import (
	"cmp"
	"context"
	"errors"
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

	// Header is sent with each request, for an organisation or a proxy. The fields that the provider needs, such as
	// that of APIKey and Content-Type, are not replaced. Nil = no others.
	Header http.Header

	// HTTPClient makes the requests, with its timeout, which includes the answer; nil = one without a
	// timeout and without a proxy.
	HTTPClient *http.Client
}

// awsTimeout bounds one request of the AWS credential chain.
const awsTimeout = 4 * time.Second

// Model returns a model by its id or that of an inference profile, over the Converse API. It connects to
// nothing, and looks for no credentials before the first call. Wrong options are an error of the first run.
func Model(id string, o Options) model.Model {
	transport := egress.ProgramTransport(o.HTTPClient, o.Header)
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
		with.Credentials = bedrock.Chain(o.Region, out.OperatorClient(awsTimeout), "AccessKeyID and SecretAccessKey in bedrock.Options")
	}
	return wire.Program{Model: bedrock.New(e, with), Provider: "bedrock", Name: id, Wrong: o.check(e)}
}

// check returns what is wrong with the options; nil = nothing.
func (o Options) check(e wire.Endpoint) error {
	switch {
	case o.Region == "":
		return errors.New("bedrock.Options.Region is empty; set it, such as us-east-1")
	case o.APIKey == "" && (o.AccessKeyID == "") != (o.SecretAccessKey == ""):
		return errors.New("bedrock.Options has only one of AccessKeyID and SecretAccessKey; set both, or none")
	case o.BaseURL == "":
		return e.CheckOption("the address that follows from bedrock.Options.Region")
	}
	return e.CheckOption("bedrock.Options.BaseURL")
}
