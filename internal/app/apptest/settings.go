package apptest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// SettingValue is a value of a key in a part.
type SettingValue struct {
	Part        part
	Name, Value string
}

func (v SettingValue) Group() string { return v.Part.at + v.Name }

// ValuesOfAnOrg are values of every shape for every key that the API can write, and keys that do not exist.
func ValuesOfAnOrg() (all []SettingValue) {
	for _, part := range partsOfAnOrg() {
		for _, key := range config.Keys() {
			rest, inside := strings.CutPrefix(key.Path, part.at)
			name, _, _ := strings.Cut(rest, ".")
			name, nested, _ := strings.Cut(name, "[")
			if !inside || name == "" || nested != "" || slices.Contains(part.without, name) {
				continue
			}
			for _, value := range shapes(key) {
				all = append(all, SettingValue{Part: part, Name: name, Value: value})
			}
		}
		for _, slip := range []string{"nonsense", strings.ToUpper(part.known)} {
			all = append(all, SettingValue{Part: part, Name: slip, Value: "true"})
		}
	}
	return all
}

// part is one part of the file that the API can write.
type part struct {
	at      string            // its path in the key table, up to the names of its keys
	known   string            // one of its keys
	without []string          // keys that the endpoint does not have
	base    map[string]string // what else stands there, as JSON
	more    string            // what stands there in the file alone
	file    string            // the configuration, with %s for the part
	inFile  string            // the path of the part in that file
	code    int               // of a refusal
	ask     map[string]string // path by method
	key     string
}

func partsOfAnOrg() []part {
	const org = `{"orgs":[%s]}`
	return []part{
		{
			at: "orgs[].mcp_servers[].", known: "url", file: `{"master_key":"env:K","orgs":[{"id":"a","mcp_servers":[%s]}]}`, inFile: "orgs[0].mcp_servers[0].",
			base: map[string]string{"name": `"s"`, "url": `"http://127.0.0.1:65009/mcp"`}, code: 422, key: "owner-key",
			ask: map[string]string{"POST": "/api/mcp-servers", "PATCH": "/api/mcp-servers/patched"},
		},
		{
			at: "orgs[].runtime.", known: "max_rounds", file: `{"orgs":[{"id":"a","runtime":%s}]}`, inFile: "orgs[0].runtime.",
			code: 422, key: "owner-key", ask: map[string]string{"PATCH": "/api/org/runtime"},
		},
		{
			at: "orgs[].", known: "id", without: []string{"keys", "runtime", "mcp_servers", "http_tools", "webhooks", "agents"}, file: org, inFile: "orgs[0].",
			base: map[string]string{"id": `"a"`}, code: 400, key: "operator-key",
			ask: map[string]string{"POST": "/api/orgs", "PATCH": "/api/orgs/patched"},
		},
		{
			// A key's name is only for people here, and the gateway makes the key.
			at: "orgs[].keys[].", known: "role", without: []string{"name", "key"},
			file: `{"orgs":[{"id":"a","keys":[%s]}]}`, inFile: "orgs[0].keys[0].",
			base: map[string]string{"name": `"k"`}, more: `"key":"env:K",`, code: 400, key: "owner-key",
			ask: map[string]string{"POST": "/api/keys"},
		},
	}
}

// shapes are values of every shape, among them the words that the key knows.
func shapes(key config.KeyDoc) []string {
	out := []string{
		"null", "true", "false", "0", "-1", "1", "7", "51", "1.5", "1e99", "99999999999999999999", `""`, `" "`, `"x"`, `"a b"`, `"5"`, `"true"`, `"30s"`, `"0s"`, `"-1s"`, `"999h"`,
		`"env:HOME"`, `"secret:token"`, `"http://127.0.0.1:65009/x"`, `"ftp://example.com"`, `"http://u:p@example.com"`, `"` + strings.Repeat("x", 200) + `"`,
		"[]", `["x"]`, `["x","x"]`, "[1]", "[null]", "[[]]", `[""]`, "[{}]", "{}", `{"x":1}`, `{"x":"y"}`, `{"a b":"y"}`, `{"Host":"y"}`, `{"X-A":"secret:a"}`, `{"X-A":null}`, `{"X-A":"1","x-a":"2"}`, `{"X-A":"1","X-A":"2"}`,
		`{"always":{"tool_names":["x"]}}`, `{"never":{"read_only":true}}`, `{"always":{"tools":["x"]}}`, `{"always":null}`,
	}
	for word := range strings.FieldsFuncSeq(key.Type, func(r rune) bool { return r == ' ' || r == ',' || r == ':' }) {
		if word = strings.Trim(word, `"()`); word != "" && !strings.ContainsAny(word, "{.…") {
			out = append(out, fmt.Sprintf("%q", word), fmt.Sprintf("[%q]", word))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Compare asks the API and the file for the same, and returns how often both
// refused it.
func (p part) Compare(d Documented, name, value string) (refused int) {
	d.T.Helper()
	for method, path := range p.ask {
		members := maps.Clone(p.base)
		if members == nil {
			members = map[string]string{}
		}
		members[name] = value
		body := Object(members)
		want := p.mistakes(fmt.Sprintf(p.file, "{"+p.more+body[1:]))
		if method == "PATCH" {
			body = Object(map[string]string{name: value})
			if value == "null" && inTable(p, name) { // gives the key its default back
				want = ""
				if name == "name" || name == "url" {
					continue // which these have not
				}
			}
			if p.at == "orgs[]." && name == "id" {
				want = "id: unknown key; known here: features" // an org keeps its name
			}
		}
		a := d.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+p.key)
		var got errorAnswer
		_ = json.Unmarshal(a.Body, &got)
		what := fmt.Sprintf("%s %s with %s", method, path, body)
		switch {
		case want == "":
			if a.Status >= 500 || a.Status == 400 && got.Error.Message == "" {
				d.T.Errorf("%s answered %d: %s", what, a.Status, a.Body)
			}
		case a.Status != p.code || upToTheKeys(got.Error.Message) != upToTheKeys(want):
			d.T.Errorf("%s answered %d %q; the file says %q", what, a.Status, got.Error.Message, want)
		default:
			refused++
		}
		if a.Status == 201 || a.Status == 200 {
			p.undo(d, method, a.Body)
		}
	}
	return refused
}

type errorAnswer struct{ Error struct{ Message string } }

// upToTheKeys leaves out which keys are known: an endpoint has fewer than the
// file.
func upToTheKeys(message string) string {
	before, _, unknown := strings.Cut(message, "unknown key; ")
	if unknown {
		return before + "unknown key"
	}
	return message
}

func inTable(p part, name string) bool {
	return slices.ContainsFunc(config.Keys(), func(k config.KeyDoc) bool { return k.Path == p.at+name })
}

// undo takes back what the API accepted, so that the next value is judged alone.
func (p part) undo(d Documented, method string, body []byte) {
	d.T.Helper()
	var made map[string]any
	if err := json.Unmarshal(body, &made); err != nil {
		d.T.Fatal(err)
	}
	switch {
	case p.at == "orgs[].mcp_servers[]." && method == "POST":
		d.Do("DELETE", "/api/mcp-servers/"+made["name"].(string), "owner-key", "", 200)
	case p.at == "orgs[].mcp_servers[].":
		d.Do("DELETE", "/api/mcp-servers/patched", "owner-key", "", 200)
		d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"patched","url":"http://127.0.0.1:65009/mcp"}`, 201)
	case p.at == "orgs[].runtime.":
		back := map[string]string{}
		for name := range made["runtime"].(map[string]any) {
			back[name] = "null"
		}
		d.Do("PATCH", "/api/org/runtime", "owner-key", Object(back), 200)
	case p.at == "orgs[]." && method == "POST":
		d.Do("DELETE", "/api/orgs/"+made["id"].(string), "operator-key", "", 200)
	case p.at == "orgs[].keys[].":
		d.Do("DELETE", "/api/keys/"+made["id"].(string), "owner-key", "", 200)
	}
}

// mistakes is what the configuration file is told, without the place of the
// part in it; empty when it is accepted.
func (p part) mistakes(file string) string {
	_, err := config.Parse("f", []byte(file), func(string) (string, bool) { return "", false })
	var e *config.Error
	if !errors.As(err, &e) {
		return ""
	}
	var out []string
	for _, m := range e.Mistakes {
		out = append(out, strings.TrimPrefix(m.Path, p.inFile)+": "+m.Message)
	}
	return strings.Join(out, "; ")
}

func Object(members map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		out = append(out, fmt.Sprintf("%q:%s", name, members[name]))
	}
	return "{" + strings.Join(out, ",") + "}"
}
