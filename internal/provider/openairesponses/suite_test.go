package openairesponses

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestSuite(t *testing.T) {
	providertest.Run(t, providertest.Adapter{
		Column: providertest.Responses, Model: "gpt-5", TooLong: "Your input exceeds the context window of this model. Please adjust your input and try again.",
		New: func(e wire.Endpoint) model.Model {
			return New(e)
		},
	})
}
