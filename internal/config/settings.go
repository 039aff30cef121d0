package config

import (
	"bytes"
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Settings are keys and their values in the order of the table. The JSON of Settings
// is an object with the keys of the file. It can be read again as a [Part].
type Settings []Setting

// Setting is one key with the JSON of its value.
type Setting struct {
	Key   string
	Value any
}

// ServerSettings returns the settings of an MCP server as the management API shows
// them, including literal values of headers. Keys that only the file has, texts
// without a value, and keys that are not built yet and have their default are left out.
func ServerSettings(m org.MCPServer) Settings { return settingsOf(serverKeys(&m)) }

// RuntimeSettings is ServerSettings for the settings of an org's runs.
func RuntimeSettings(r org.Runtime) Settings { return settingsOf(runtimeKeys(&r)) }

func settingsOf(keys []key) Settings {
	out := Settings{}
	for _, k := range keys {
		v := k.value.(leaf)
		value := v.json()
		if _, empty := value.(unset); empty || k.fileOnly != "" || k.unbuilt.instead != "" && v.shown() == v.defaultText() {
			continue
		}
		out = append(out, Setting{k.name, value})
	}
	return out
}

// MarshalJSON implements json.Marshaler. It does not escape <, > and &; the encoder
// around it may.
func (s Settings) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	b.WriteByte('{')
	for i, member := range s {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := encoder.Encode(member.Key); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encoder.Encode(member.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
