package bedrock

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestSuite(t *testing.T) { // M04
	for _, name := range []string{
		"us.anthropic.claude-sonnet-4-5-20250929-v1:0",                                             // thinks for a number of tokens
		"arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-opus-4-6-v1", // decides by itself how much it thinks
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Adapter{
				Column: providertest.Bedrock, Model: name, TooLong: "The model returned the following errors: Input is too long for requested model.",
				New: func(e wire.Endpoint) model.Model {
					return New(e, signed())
				},
			})
		})
	}
}

// signed are the options with which a strict fake accepts requests.
func signed() Options {
	return Options{Region: turnpiketest.AWSRegion, Credentials: Static(turnpiketest.AWSAccessKeyID, turnpiketest.AWSSecretAccessKey, turnpiketest.AWSSessionToken)}
}
