package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// FuzzModels: the names that are read are the ids that the standard library
// finds, in their order.
func FuzzModels(f *testing.F) {
	f.Add(`{"object":"list","data":[{"id":"gpt-5","object":"model","created":1700000000,"owned_by":"openai"}]}`)
	f.Add(`[{"id":"a"},{"id":7},null,{"created":1,"id":"\u0061\ud800"}]`)
	f.Add(`{"data":null,"data":[{"id":"a","id":"b"}]}`)
	f.Add(`{"error":{"message":"no"},"data":[]}`)
	f.Fuzz(func(t *testing.T, body string) {
		if !jsonscan.Valid([]byte(body)) || strings.TrimSpace(body) != body {
			return // what package wire does not hand over
		}
		var names []string
		err := readModels([]byte(body), func(m model.Listed) bool {
			if m.Name == "" || m.Created.Unix() < 0 && !m.Created.IsZero() {
				t.Fatalf("%q is read as %+v", body, m)
			}
			names = append(names, m.Name)
			return true
		})
		if err != nil {
			if names != nil {
				t.Fatalf("%q: %v, after %q", body, err, names)
			}
			return
		}
		var elements []json.RawMessage
		if json.Unmarshal([]byte(body), &elements) != nil {
			var object map[string]json.RawMessage
			if json.Unmarshal([]byte(body), &object) != nil {
				return
			}
			_ = json.Unmarshal(object["data"], &elements)
		}
		var want []string
		for _, e := range elements {
			var m map[string]json.RawMessage
			var id string
			if json.Unmarshal(e, &m) == nil && json.Unmarshal(m["id"], &id) == nil && id != "" {
				want = append(want, id)
			}
		}
		if strings.ToValidUTF8(body, "") == body && !strings.ContainsAny(body, "\\\ufffd") && strings.Join(want, "\n") != strings.Join(names, "\n") {
			t.Fatalf("%q: %q, want %q", body, names, want)
		}
	})
}
