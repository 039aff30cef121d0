package gemini

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// functionName is what the provider takes as the name of a function.
var functionName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}$`)

// alias returns the name under which the provider gets a function. It is the function's own name,
// unless the provider refuses that one.
func alias(name string) string {
	if functionName.MatchString(name) {
		return name
	}
	clean := wire.Word(name)
	sum := sha256.Sum256([]byte(name))
	return "_" + clean[:min(len(clean), 100)] + "_" + hex.EncodeToString(sum[:4])
}

// aliases returns the names of the functions of a request whose aliases differ, by alias; nil =
// none does.
func aliases(req *model.Request) map[string]string {
	var names map[string]string
	for _, t := range req.Tools {
		if as := alias(t.Name); as != t.Name && t.Name != "" {
			if names == nil {
				names = map[string]string{}
			}
			names[as] = t.Name
		}
	}
	return names
}
