package mcptool

import (
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// handshakeResult returns the part of the result of a handshake that is used, in the types that
// the SDK decodes. Servers send values of other types: PHP writes [] for an empty object, and
// versions are numbers. The SDK refuses the whole result for one of them.
func handshakeResult(method string, result json.RawMessage) json.RawMessage {
	members := read[map[string]json.RawMessage](result)
	reduced := map[string]any{"capabilities": capabilities(members["capabilities"])}
	if method == methodInitialize {
		reduced["protocolVersion"] = read[string](members["protocolVersion"])
		reduced["serverInfo"] = implementation(members["serverInfo"])
		return encode(reduced)
	}
	versions := []string{}
	for _, v := range read[[]json.RawMessage](members["supportedVersions"]) {
		if text := read[string](v); text != "" {
			versions = append(versions, text)
		}
	}
	reduced["supportedVersions"] = versions
	if info, ok := read[map[string]json.RawMessage](members["_meta"])[mcp.MetaKeyServerInfo]; ok {
		reduced["_meta"] = map[string]any{mcp.MetaKeyServerInfo: implementation(info)}
	}
	return encode(reduced)
}

// capabilities returns what the server says about its tools.
func capabilities(raw json.RawMessage) map[string]any {
	tools, ok := read[map[string]json.RawMessage](raw)["tools"]
	if !ok || !present(tools) {
		return map[string]any{}
	}
	changes := read[bool](read[map[string]json.RawMessage](tools)["listChanged"])
	return map[string]any{"tools": map[string]bool{"listChanged": changes}}
}

// implementation returns the name and the version of the server.
func implementation(raw json.RawMessage) map[string]string {
	members := read[map[string]json.RawMessage](raw)
	return map[string]string{"name": scalar(members["name"]), "version": scalar(members["version"])}
}

// scalar returns the text of a string or a number, and "" for other values.
func scalar(raw json.RawMessage) string {
	if text := read[string](raw); text != "" {
		return text
	}
	return string(read[json.Number](raw))
}
