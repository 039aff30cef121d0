package gemini

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/schema"
)

// formats are the formats of strings that the provider knows.
var formats = []string{"date-time", "date", "time"}

// answerDialect returns what the provider takes of JSON Schema, as the documentation of
// responseJsonSchema lists it:
// https://ai.google.dev/api/generate-content#v1beta.GenerationConfig. The provider reads
// oneOf as anyOf.
func answerDialect() *schema.Dialect {
	return &schema.Dialect{
		Plain: true,
		Keywords: map[string]schema.Keyword{
			"type": {}, "title": {}, "required": {}, "minItems": {}, "maxItems": {}, "minimum": {}, "maximum": {},
			"$id": {}, "$anchor": {}, "propertyOrdering": {},
			"format":               {Takes: func(v []byte) bool { return slices.Contains(formats, jsonscan.Text(v)) }},
			"enum":                 {Takes: isSimpleEnum},
			"const":                {As: "enum", Takes: func(v []byte) bool { return isSimpleEnum(asList(v)) }, Write: asList},
			"properties":           {Holds: schema.HoldsNamedSchemas},
			"$defs":                {Holds: schema.HoldsNamedSchemas},
			"definitions":          {Holds: schema.HoldsNamedSchemas, As: "$defs"},
			"items":                {Holds: schema.HoldsSchema},
			"prefixItems":          {Holds: schema.HoldsSchemas},
			"anyOf":                {Holds: schema.HoldsSchemas},
			"oneOf":                {Holds: schema.HoldsSchemas, As: "anyOf"},
			"additionalProperties": {Holds: schema.HoldsFlag},
		},
	}
}

func asList(v []byte) []byte { return slices.Concat([]byte("["), v, []byte("]")) }

// isSimpleEnum reports whether all values are strings or numbers.
func isSimpleEnum(v []byte) bool {
	for _, e := range jsonscan.Elements(v) {
		if e = jsonscan.TrimSpace(e); !jsonscan.IsKind(e, '"') && (len(e) == 0 || e[0] != '-' && (e[0] < '0' || e[0] > '9')) {
			return false
		}
	}
	return jsonscan.IsKind(v, '[')
}

// subset returns a schema with what the provider takes of it. What else limits the values,
// such as a pattern, becomes a part of the description, and is returned in lost by name.
func subset(whole json.RawMessage) (reduced json.RawMessage, lost []string) {
	return answerDialect().Reduce(whole)
}
