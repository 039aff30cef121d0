package schema

import (
	"encoding/json"
	"fmt"
	"testing"
)

// BenchmarkNormalArguments is what a list of 50 tools costs: as servers list them, and in the
// normal form, which is what requests have.
func BenchmarkNormalArguments(b *testing.B) {
	var listed, normal []json.RawMessage
	for i := range 50 {
		text := json.RawMessage(fmt.Sprintf(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{
			"path":{"type":"string","description":"The path of the file, from the root of project %d."},
			"range":{"type":"array","items":[{"type":"integer","minimum":0},{"type":"integer","minimum":0}],"additionalItems":false},
			"mode":{"enum":["read","write","append"],"default":"read"},
			"filters":{"type":"array","items":{"type":"object","properties":{"field":{"type":"string"},"op":{"enum":["eq","lt","gt"]},"value":{"anyOf":[{"type":"string"},{"type":"number"},{"type":"null"}]}},"required":["field","op"]}},
			"options":{"type":"object","properties":{"limit":{"type":"integer","minimum":0,"exclusiveMinimum":true},"tags":{"type":"array"},"nested":{"$ref":"#/definitions/N"}}}
			},"required":["path"],"additionalProperties":false,"definitions":{"N":{"type":"object","properties":{"a":{"type":"string","format":"date-time"}}}}}`, i))
		listed, normal = append(listed, text), append(normal, NormalArguments(text))
	}
	for name, schemas := range map[string][]json.RawMessage{"listed": listed, "normal": normal} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				for _, s := range schemas {
					NormalArguments(s)
				}
			}
		})
	}
}
