package wire

import (
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/model"
)

// Program is a model of a provider as programs use it: with its name, and with what is wrong with its options.
type Program struct {
	model.Model
	Provider, Name string
	Wrong          error // nil = nothing
}

var (
	_ model.Named   = Program{}
	_ model.Checked = Program{}
)

// ModelName implements model.Named.
func (p Program) ModelName() (provider, name string) { return p.Provider, p.Name }

// Check implements model.Checked.
func (p Program) Check() error {
	if p.Name == "" {
		return errors.New("the name of the model is empty")
	}
	return p.Wrong
}

// CheckOption returns what is wrong with the base URL of an endpoint, whose field is named in the error; nil = nothing.
func (e Endpoint) CheckOption(field string) error {
	base, err := parseBase(e.BaseURL)
	if err == nil && base.Scheme != "http" && base.Scheme != "https" {
		err = fmt.Errorf("%q does not begin with https:// or http://", e.BaseURL)
	}
	if err != nil {
		return fmt.Errorf("%s is not a URL such as https://api.example.com/v1: %w", field, err)
	}
	return nil
}
