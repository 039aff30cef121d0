package mcptool

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/item"
)

// FuzzFrame: a message is read or refused as malformed; it is an answer, a
// request or neither, and answers no other request than its own; its result
// keeps the server's bytes. // D18
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`, `{"id":"1","result":{}}`, `{"id":1.0,"result":null}`, `{"id":1,"method":"ping"}`,
		`{"id":null,"error":{"code":-32700,"message":"no"}}`, `{"id":{"id":1},"result":{}}`, `[{"id":1,"result":{}}]`, `{"id":1,"error":null,"result":{}}`,
		`{"ID":1,"Result":{"a":1}}`, `{"id":1,"id":2,"result":{}}`, "\ufeff{\"id\":1,\"result\":\"\xff\"}", `{"method":"notifications/tools/list_changed"}`, `null`,
	} {
		f.Add([]byte(seed), uint8(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, n uint8) {
		m, err := decodeFrame(data)
		if err != nil {
			if !errors.Is(err, errMalformed) {
				t.Fatal(err)
			}
			return
		}
		id, other := json.RawMessage{'0' + n%10}, json.RawMessage{'0' + (n+1)%10}
		if (m.asks() || m.announces()) && m.answers(id) {
			t.Fatalf("%s asks and answers", data)
		}
		if m.answers(id) && m.answers(other) && present(m.ID) {
			t.Fatalf("%s answers %s and %s", data, id, other)
		}
		if m.answers(id) && present(m.ID) && !sameNumber(m.ID, id) {
			t.Fatalf("%s answers %s", data, id)
		}
		if m.asks() {
			var id json.RawMessage
			if err := json.Unmarshal(m.ID, &id); err != nil {
				t.Fatalf("%s cannot be answered: %v", data, err)
			}
		}
		if utf8.Valid(data) && !bytes.Contains(data, m.Result) {
			t.Fatalf("%s has the result %s", data, m.Result)
		}
		if present(m.Error) {
			if e := decodeRPCError(m.Error); e == nil || !utf8.ValidString(e.Message) {
				t.Fatalf("%s: %+v", data, e)
			}
		}
		a := &answer{exchange: &exchange{}, id: id, method: methodList}
		if m.answers(id) {
			if again, err := decodeFrame(a.settle(m)); err != nil || !again.answers(id) || present(again.Error) != present(m.Error) {
				t.Fatalf("%s becomes %+v, %v", data, again, err)
			}
		}
	})
}

// FuzzDefinition: what was read of a tool is read the same when it is sent on,
// and a result says the same both times. // D10
func FuzzDefinition(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","title":"A","description":"d","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":null}}`,
		`{"name":"a","annotations":{"title":"t","readOnlyHint":"yes"},"inputSchema":[1]}`, `{"name":7}`, `{"Name":"a","name":"b"}`, `{"name":"a","inputSchema":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, ok := decodeDefinition(raw)
		if !ok {
			return
		}
		sent, err := json.Marshal(map[string]any{
			"name": d.Name, "title": d.Title, "description": d.Description, "inputSchema": d.InputSchema,
			"annotations": map[string]any{
				"readOnlyHint": d.Annotations.ReadOnly, "destructiveHint": d.Annotations.Destructive,
				"idempotentHint": d.Annotations.Idempotent, "openWorldHint": d.Annotations.OpenWorld,
			},
		})
		if err != nil {
			t.Fatalf("%+v cannot be sent on: %v", d, err)
		}
		again, ok := decodeDefinition(sent)
		if len(d.InputSchema) == 0 {
			again.InputSchema = d.InputSchema
		}
		x, _ := json.Marshal(d)
		y, _ := json.Marshal(again)
		if !ok || !bytes.Equal(x, y) {
			t.Fatalf("%s, then %s", x, y)
		}
		for _, p := range decodeResult("t", "s", raw).Parts {
			if p.Kind == "" || p.Kind == item.Text && p.Data != "" || !utf8.ValidString(p.Text) && utf8.Valid(raw) {
				t.Fatalf("part %+v", p)
			}
		}
	})
}

// sameNumber reports whether an id is the number n, also as a text.
func sameNumber(id, n json.RawMessage) bool {
	var text string
	if json.Unmarshal(id, &text) == nil {
		id = json.RawMessage(text)
	}
	var a, b float64
	return json.Unmarshal(id, &a) == nil && json.Unmarshal(n, &b) == nil && a == b
}
