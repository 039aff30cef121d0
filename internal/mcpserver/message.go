package mcpserver

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// The SDK reads a message more strictly than clients write it, and numbers less exactly. Before it gets a message, ids
// that it cannot keep become strings, and the members that this server does not use are left out of initialize.

// idPrefixOfNumbers begins the string that stands for an id while the SDK answers.
const idPrefixOfNumbers = "turnpike-number:"

// exactID returns an id that the SDK keeps: the id itself, or a string in place of a number that the SDK would round.
func exactID(id json.RawMessage) json.RawMessage {
	const largest = 1 << 53 // the SDK reads numbers as float64
	if len(id) == 0 || id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return id
	}
	if n, err := strconv.ParseInt(string(id), 10, 64); err == nil && -largest < n && n < largest {
		return id
	}
	return json.RawMessage(`"` + idPrefixOfNumbers + string(id) + `"`)
}

// forSDK returns the message, which is valid JSON, as the SDK gets it: body itself, if nothing is to change.
func (m message) forSDK(body []byte) ([]byte, error) {
	params := m.Params
	switch m.Method {
	case "initialize":
		params = helloOf(m.Params)
	case "notifications/cancelled":
		if id := jsonscan.Member(m.Params, "requestId"); !bytes.Equal(exactID(id), id) {
			params = json.RawMessage(`{"requestId":` + string(exactID(id)) + `}`)
		}
	}
	id := exactID(m.ID)
	if m.Method == "" || bytes.Equal(id, m.ID) && bytes.Equal(params, m.Params) {
		return body, nil
	}
	return json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id,omitempty"`
		Method  string          `json:"method"`
		Params  json.RawMessage `json:"params,omitempty"`
	}{m.Version, id, m.Method, params})
}

// helloOf returns the params of initialize with what this server reads of them, and what the SDK requires. It offers no
// feature for which a client needs a capability.
func helloOf(params json.RawMessage) json.RawMessage {
	info := jsonscan.Member(params, "clientInfo")
	out, _ := json.Marshal(map[string]any{ // strings: cannot fail
		"protocolVersion": jsonscan.Text(jsonscan.Member(params, "protocolVersion")),
		"capabilities":    struct{}{},
		"clientInfo": map[string]string{
			"name": jsonscan.Text(jsonscan.Member(info, "name")), "version": jsonscan.Text(jsonscan.Member(info, "version")),
		},
	})
	return out
}

// accepts reports which answers the values of the header Accept allow. Without a value, both are allowed.
func accepts(values []string) (asJSON, asStream bool) {
	all := strings.ToLower(strings.Join(values, ","))
	if strings.TrimSpace(all) == "" {
		return true, true
	}
	for one := range strings.SplitSeq(all, ",") {
		kind, parameters, _ := strings.Cut(one, ";")
		if q := strings.ReplaceAll(parameters, " ", ""); q == "q=0" || strings.HasPrefix(q, "q=0.") && strings.Trim(q[len("q=0."):], "0") == "" {
			continue
		}
		switch strings.TrimSpace(kind) {
		case "application/json", "application/*":
			asJSON = true
		case "text/event-stream", "text/*":
			asStream = true
		case "*/*":
			asJSON, asStream = true, true
		}
	}
	return asJSON, asStream
}

// responseIn returns the response in a stream of events of the SDK; nil = there is none.
func responseIn(stream []byte) []byte {
	for event := range bytes.SplitSeq(stream, []byte("\n\n")) {
		for line := range bytes.Lines(event) {
			data, ok := bytes.CutPrefix(line, []byte("data: "))
			if data = bytes.TrimSpace(data); ok && jsonscan.Member(data, "id") != nil && jsonscan.Member(data, "method") == nil {
				return data
			}
		}
	}
	return nil
}
