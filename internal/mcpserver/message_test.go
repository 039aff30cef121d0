package mcpserver

import (
	"encoding/json"
	"testing"
)

// What clients write is what the SDK can read: the id of an answer is the client's, and odd members of initialize that
// are not used do not end it. // D26
func TestMessagesForTheSDK(t *testing.T) {
	const (
		cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":`
		hello     = `{"jsonrpc":"2.0","id":1,"method":"initialize"`
	)
	for body, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                 "",
		`{"jsonrpc":"2.0","id":"x","method":"ping"}`:               "",
		`{"jsonrpc":"2.0","id":-9007199254740991,"method":"ping"}`: "",
		`{"jsonrpc":"2.0","id":7,"result":{}}`:                     "",
		`{"jsonrpc":"2.0","id":1e308,"method":"ping"}`:             `{"jsonrpc":"2.0","id":"turnpike-number:1e308","method":"ping"}`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`:  `{"jsonrpc":"2.0","id":"turnpike-number:9007199254740993","method":"ping"}`,
		`{"jsonrpc":"2.0","id":1.5,"method":"ping","params":{}}`:   `{"jsonrpc":"2.0","id":"turnpike-number:1.5","method":"ping","params":{}}`,
		cancelled + `{"requestId":3,"reason":"r"}}`:                "",
		cancelled + `{"requestId":1e308,"reason":"r"}}`:            cancelled + `{"requestId":"turnpike-number:1e308"}}`,
		hello + `,"params":{"protocolVersion":7,"capabilities":[],"clientInfo":{"name":"c","version":1}}}`: hello +
			`,"params":{"capabilities":{},"clientInfo":{"name":"c","version":""},"protocolVersion":""}}`,
		hello + `}`: hello + `,"params":{"capabilities":{},"clientInfo":{"name":"","version":""},"protocolVersion":""}}`,
	} {
		var m message
		if err := json.Unmarshal([]byte(body), &m); err != nil {
			t.Fatal(err)
		}
		if want == "" {
			want = body
		}
		if got, err := m.forSDK([]byte(body)); err != nil || string(got) != want {
			t.Errorf("%s\nbecomes %s (%v)\nwant    %s", body, got, err, want)
		}
	}
}

func TestWhatAClientAccepts(t *testing.T) {
	for value, want := range map[string][2]bool{
		"":                 {true, true},
		"*/*":              {true, true},
		"application/json": {true, false},
		"APPLICATION/JSON; charset=utf-8, text/event-stream;q=0": {true, false},
		"text/event-stream": {false, true},
		"text/*;q=0.5":      {false, true},
		"text/html":         {false, false},
		"application/json, text/event-stream;q=0.5": {true, true},
	} {
		asJSON, asStream := accepts([]string{value})
		if got := [2]bool{asJSON, asStream}; got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}
