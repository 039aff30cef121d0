package responses_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/conversation"
)

// What this build cannot decode can be deleted, with what belongs to it.
func TestWhatCannotBeDecodedCanBeDeleted(t *testing.T) { // J09 J10
	for name, spoil := range map[string]func([]byte) []byte{
		"a newer build has stored it": func(body []byte) []byte { return bytes.Replace(body, []byte(`"v":1`), []byte(`"v":999`), 1) },
		"it is damaged":               func(body []byte) []byte { return body[:len(body)/2] },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "text It is a language.")
			alice := b.caller("acme", "alice")
			id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","content":"Hello."}]}`).object.ID
			response := b.post(t, `{"model":"m","input":"What is Go?","conversation":"`+id+`"}`).object.ID
			c, err := conversation.Find(t.Context(), b.kept, "acme", "conv_", id)
			if err != nil || len(c.Parts) != 2 {
				t.Fatalf("%v, %+v", err, c)
			}
			b.kept.spoil = spoil
			if a := b.do(t, alice, b.Get, http.MethodGet, response, "", ""); a.status != 500 || !strings.Contains(a.body, "conversation_unreadable") {
				t.Fatalf("%+v", a)
			}
			var gone []string
			for range 2 { // the second time, there is nothing to be deleted
				a, c := b.do(t, alice, b.Delete, http.MethodDelete, response, "", ""), b.conversation(t, alice, "DELETE", id, "", "", "")
				gone = append(gone, http.StatusText(a.status), http.StatusText(c.status))
			}
			if got := strings.Join(gone, ", "); got != "OK, OK, Not Found, Not Found" {
				t.Error(got)
			}
			b.kept.spoil = nil
			if name != "a newer build has stored it" {
				return // nobody knows what it consisted of
			}
			for _, part := range c.Parts {
				if left, err := conversation.FindPart(t.Context(), b.kept, "acme", part); err != nil || left != nil {
					t.Errorf("%v; %s is left: what belongs to a conversation ends with it", err, part)
				}
			}
		})
	}
}
