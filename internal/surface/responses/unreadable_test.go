package responses_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/conversation"
)

// What this build cannot decode can be deleted, with what belongs to it.
func TestWhatCannotBeDecodedCanBeDeleted(t *testing.T) { // J09 J10
	for name, spoil := range map[string]func([]byte) []byte{
		"a newer build has stored it": func(body []byte) []byte { return append([]byte(`{"v":99`), body[len(`{"v":`):]...) },
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

// What was stored before the input had a place of its own is listed as it was, under the same ids.
func TestTheFirstStoredFormIsRead(t *testing.T) { // J09
	b := newBench(t, "text It is a language.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","content":"Hello."}]}`).object.ID
	response := b.post(t, `{"model":"m","input":[{"role":"user","content":"What is Go?"},{"type":"message","id":"msg_mine","role":"user","content":"Tell me."}],"conversation":"`+id+`"}`).object.ID
	list := func() (out string) {
		for _, a := range []answer{b.do(t, alice, b.InputItems, http.MethodGet, response, "", ""), b.do(t, alice, b.ListItems, http.MethodGet, id, "", ""), b.do(t, alice, b.Get, http.MethodGet, response, "", "")} {
			out += fmt.Sprintln(a.status, a.body)
		}
		return out
	}
	want := list()
	b.kept.spoil = func(body []byte) []byte { return inFirstForm(t, body) }
	if got := list(); got != want || strings.Count(got, "msg_mine") < 2 || strings.Contains(got, "null") && !strings.Contains(want, "null") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// inFirstForm returns a stored conversation as builds before the second form have stored it.
func inFirstForm(t *testing.T, body []byte) []byte {
	t.Helper()
	var c map[string]json.RawMessage
	var input []struct{ JSON json.RawMessage }
	if err := json.Unmarshal(body, &c); err != nil {
		t.Fatal(err)
	}
	if c["input"] == nil {
		return body
	}
	echo := map[string]json.RawMessage{"response": json.RawMessage("{}")}
	if c["echo"] != nil {
		if err := json.Unmarshal(c["echo"], &echo); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(c["input"], &input); err != nil {
		t.Fatal(err)
	}
	var raws []json.RawMessage
	for _, e := range input {
		raws = append(raws, e.JSON)
	}
	delete(c, "input")
	c["v"] = json.RawMessage("1")
	echo["input"] = marshal(t, raws)
	c["echo"] = marshal(t, echo)
	return marshal(t, c)
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
