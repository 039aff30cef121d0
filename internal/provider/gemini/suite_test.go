package gemini

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestSuite(t *testing.T) { // M03
	for _, name := range []string{
		"gemini-3-flash-preview", // thinks at a level, and checks signatures
		"gemini-2.5-flash",       // thinks for a number of tokens
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, providertest.Adapter{
				Column: providertest.Gemini, Model: name,
				TooLong: "The input token count (2000000) exceeds the maximum number of tokens allowed (1048576).",
				New:     func(e wire.Endpoint) model.Model { return New(e, Options{}) },
			})
		})
	}
}
