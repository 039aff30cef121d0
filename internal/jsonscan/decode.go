package jsonscan

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
)

// Decode decodes the arguments of a tool call into a struct. Names of members match exactly, with their case, as rules
// and hooks read them; encoding/json would also take "Code" for "code". A name that occurs twice is an error. Members
// that the struct does not have are ignored.
func Decode(arguments []byte, into any) error { return readable(json.Unmarshal(arguments, into)) }

// DecodeStrict is [Decode], but members that the struct does not have are an error.
func DecodeStrict(arguments []byte, into any) error {
	return readable(json.Unmarshal(arguments, into, json.RejectUnknownMembers(true)))
}

// readable returns an error that names the argument, and no type of Go.
func readable(err error) error {
	var of *json.SemanticError
	if !errors.As(err, &of) {
		return err
	}
	name := strings.ReplaceAll(strings.TrimPrefix(string(of.JSONPointer), "/"), "/", ".")
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return fmt.Errorf("the argument %s is not known", name)
	case name == "":
		return errors.New("the arguments are not a JSON object")
	}
	return fmt.Errorf("the argument %s has the wrong type: %s", name, of.JSONKind)
}
