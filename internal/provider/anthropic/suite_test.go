package anthropic

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestSuite(t *testing.T) {
	for _, name := range []string{
		"claude-sonnet-4-5", // thinks for a number of tokens
		"claude-opus-4-6",   // decides by itself how much it thinks
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Adapter{
				Column: providertest.Anthropic, Model: name, TooLong: "prompt is too long: 3333404 tokens > 200000 maximum",
				New: func(e wire.Endpoint) model.Model {
					return New(e, Options{})
				},
			})
		})
	}
}
