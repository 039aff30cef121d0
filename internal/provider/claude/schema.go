package claude

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/schema"
)

// stringFormats are the formats of strings that the provider enforces.
var stringFormats = []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}

// answerDialect returns what the provider enforces:
// https://platform.claude.com/docs/en/build-with-claude/structured-outputs. An answer
// that matches one schema of oneOf mostly matches no other.
func answerDialect() *schema.Dialect {
	return &schema.Dialect{
		Closed: true,
		Keywords: map[string]schema.Keyword{
			"type": {}, "enum": {}, "const": {}, "required": {}, "title": {}, "$ref": {},
			"format":      {Takes: func(v []byte) bool { return slices.Contains(stringFormats, jsonscan.Text(v)) }},
			"minItems":    {Takes: func(v []byte) bool { return string(v) == "0" || string(v) == "1" }},
			"properties":  {Holds: schema.HoldsNamedSchemas},
			"$defs":       {Holds: schema.HoldsNamedSchemas},
			"definitions": {Holds: schema.HoldsNamedSchemas},
			"items":       {Holds: schema.HoldsSchema},
			"anyOf":       {Holds: schema.HoldsSchemas},
			"allOf":       {Holds: schema.HoldsSchemas},
			"oneOf":       {Holds: schema.HoldsSchemas, As: "anyOf"},
		},
	}
}

// AnswerSchema returns a schema of answers as the provider takes it. Objects are closed,
// which allows no answer that the client's schema does not allow. What the provider
// cannot enforce, such as a minimum, becomes a part of the description, and is returned
// in lost by name.
func AnswerSchema(answer json.RawMessage) (reduced json.RawMessage, lost []string) {
	return answerDialect().Reduce(answer)
}
