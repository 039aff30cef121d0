package apptest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Documented sends management requests and checks every answer against the
// OpenAPI document that the gateway serves.
type Documented struct {
	*Gateway
	doc map[string]any
}

func Manage(g *Gateway) Documented {
	if known := document.Load(); known != nil {
		return Documented{Gateway: g, doc: *known}
	}
	var doc map[string]any
	if err := json.Unmarshal(g.Send("GET", "/openapi.json", nil).Body, &doc); err != nil {
		g.T.Fatal(err)
	}
	document.Store(&doc)
	return Documented{Gateway: g, doc: doc}
}

// document is the document that a gateway served first; all serve the same. It is not changed.
var document atomic.Pointer[map[string]any]

// Do sends a request as the holder of key and returns the decoded answer.
func (d Documented) Do(method, path, key, body string, want int) map[string]any {
	d.T.Helper()
	a := d.Send(method, path, strings.NewReader(body), "Authorization", "Bearer "+key)
	if a.Status != want {
		d.T.Fatalf("%s %s answered %d, want %d: %s", method, path, a.Status, want, a.Body)
	}
	d.Conforms(method, path, a)
	if !bytes.HasSuffix(a.Body, []byte("}\n")) {
		d.T.Errorf("%s %s: the answer does not end its line: %q", method, path, a.Body)
	}
	var out map[string]any
	if err := json.Unmarshal(a.Body, &out); err != nil {
		d.T.Fatalf("%s %s: %v: %s", method, path, err, a.Body)
	}
	return out
}

// schemas are the schemas of the document that were compiled in this process, by their pointers.
var schemas sync.Map

// schema returns the schema at a pointer into the document, which is the same for all gateways.
func (d Documented) schema(pointer string) (*jsonschema.Schema, error) {
	if known, ok := schemas.Load(pointer); ok {
		return known.(*jsonschema.Schema), nil
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///openapi.json", d.doc); err != nil {
		return nil, err
	}
	schema, err := c.Compile("mem:///openapi.json#" + (&url.URL{Path: pointer}).EscapedPath())
	if err == nil {
		schemas.Store(pointer, schema)
	}
	return schema, err
}

// response returns the pointer to the response of a path, method and status.
func (d Documented) response(method, path string, status int) string {
	template := d.template(path)
	method = strings.ToLower(method)
	operation, _ := d.doc["paths"].(map[string]any)[template].(map[string]any)[method].(map[string]any)
	responses, _ := operation["responses"].(map[string]any)
	response, _ := responses[fmt.Sprint(status)].(map[string]any)
	if ref, ok := response["$ref"].(string); ok {
		return strings.TrimPrefix(ref, "#")
	}
	return fmt.Sprintf("/paths/%s/%s/responses/%d", strings.NewReplacer("~", "~0", "/", "~1").Replace(template), method, status)
}

// Conforms checks the answer against the schema of its path, method and status.
func (d Documented) Conforms(method, path string, a Answer) {
	d.T.Helper()
	schema, err := d.schema(d.response(method, path, a.Status) + "/content/application~1json/schema")
	if err != nil {
		d.T.Fatalf("the document says nothing of %s %s with %d: %v", method, d.template(path), a.Status, err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(a.Body))
	if err != nil {
		d.T.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		d.T.Errorf("%s %s answered %s, which is not what the document says: %v", method, path, a.Body, err)
	}
}

// conformsStream checks each event of a stream against the schema of its path.
func (d Documented) conformsStream(method, path string, a Answer) {
	d.T.Helper()
	schema, err := d.schema(d.response(method, path, a.Status) + "/content/text~1event-stream/schema")
	if err != nil {
		d.T.Errorf("the document says nothing of the stream of %s %s: %v", method, path, err)
		return
	}
	for block := range strings.SplitSeq(string(a.Body), "\n\n") {
		for line := range strings.Lines(block) {
			data, is := strings.CutPrefix(line, "data: ")
			if !is {
				continue
			}
			value, err := jsonschema.UnmarshalJSON(strings.NewReader(data))
			if err == nil {
				err = schema.Validate(value)
			}
			if err != nil {
				d.T.Errorf("%s %s sends %s, which is not what the document says: %v", method, path, data, err)
			}
		}
	}
}

// Send sends a request as it is. What /api/agents, /api/sessions, /api/tools and /api/settings answer is checked against the
// document, also the events of streams.
func (d Documented) Send(method, path string, body io.Reader, fields ...string) Answer {
	d.T.Helper()
	a := d.Gateway.Send(method, path, body, fields...)
	plain, _, _ := strings.Cut(path, "?")
	if !slices.ContainsFunc([]string{"/api/agents", "/api/sessions", "/api/tools", "/api/settings"}, func(p string) bool { return plain == p || strings.HasPrefix(plain, p+"/") }) {
		return a
	}
	switch kind, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";"); {
	case kind == "text/event-stream":
		d.conformsStream(method, path, a)
	case kind == "application/json" && d.knows(method, path):
		d.Conforms(method, path, a)
	}
	return a
}

// knows reports whether the document has the path and the method.
func (d Documented) knows(method, path string) bool {
	path, _, _ = strings.Cut(path, "?")
	asked := strings.Split(path, "/")
	for template, verbs := range d.doc["paths"].(map[string]any) {
		parts := strings.Split(template, "/")
		same := len(parts) == len(asked)
		for i := 0; same && i < len(parts); i++ {
			same = parts[i] == asked[i] || strings.HasPrefix(parts[i], "{")
		}
		if _, has := verbs.(map[string]any)[strings.ToLower(method)]; same && has {
			return true
		}
	}
	return false
}

// template returns the document's path for a request's.
func (d Documented) template(path string) string {
	d.T.Helper()
	path, _, _ = strings.Cut(path, "?")
	asked := strings.Split(path, "/")
	if _, exact := d.doc["paths"].(map[string]any)[path]; exact {
		return path
	}
	for template := range d.doc["paths"].(map[string]any) {
		parts := strings.Split(template, "/")
		same := len(parts) == len(asked) || len(parts) < len(asked) && strings.HasSuffix(template, "/files/{path}") // which may contain /
		for i := 0; same && i < len(parts); i++ {
			same = parts[i] == asked[i] || strings.HasPrefix(parts[i], "{")
		}
		if same {
			return template
		}
	}
	d.T.Fatalf("the document has no path for %s", path)
	return ""
}

const ChatBody = `{"model":"m","messages":[{"role":"user","content":"echo this"}]}`

// CallThenAnswer calls the tool echo if it is offered, once.
func CallThenAnswer(w http.ResponseWriter, _ *http.Request, got Received) {
	if bytes.Contains(got.Body, []byte(`"echo"`)) && !bytes.Contains(got.Body, []byte(`"role":"tool"`)) {
		Asks(Use("echo", `{"n":1}`)).Write(w)
		return
	}
	Says("done").Write(w)
}

// Last returns what the upstream got last.
func (u *Upstream) Last() string {
	all := u.Requests()
	return string(all[len(all)-1].Body)
}

// Bodies returns the members of each body that is an object of known members, by path and method.
func (d Documented) Bodies() map[string]map[string]map[string]any {
	all := map[string]map[string]map[string]any{}
	for path, operations := range d.doc["paths"].(map[string]any) {
		for method, operation := range operations.(map[string]any) {
			schema := d.at(operation, "requestBody", "content", "application/json", "schema")
			if members, ok := d.at(schema, "properties").(map[string]any); ok {
				if all[path] == nil {
					all[path] = map[string]map[string]any{}
				}
				all[path][strings.ToUpper(method)] = members
			}
		}
	}
	return all
}

// Answered returns the members that an answer must have, and all that it can have.
func (d Documented) Answered(method, path string, status int) (required, all []string) {
	schema := d.At("paths", path, strings.ToLower(method), "responses", fmt.Sprint(status), "content", "application/json", "schema")
	parts, _ := d.at(schema, "allOf").([]any)
	for _, part := range append(parts, schema) {
		members, _ := d.at(part, "properties").(map[string]any)
		all = slices.AppendSeq(all, maps.Keys(members))
		names, _ := d.at(part, "required").([]any)
		for _, name := range names {
			required = append(required, fmt.Sprint(name))
		}
	}
	return required, all
}

// At returns what is at a path of names in the document, or nil. It follows references.
func (d Documented) At(names ...string) any { return d.at(d.doc, names...) }

// at returns what is at a path of names in a value of the document, or nil. It follows references.
func (d Documented) at(value any, names ...string) any {
	for {
		object, _ := value.(map[string]any)
		switch ref, is := object["$ref"].(string); {
		case is:
			value = d.At(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		case len(names) == 0 || object == nil:
			return value
		default:
			value, names = object[names[0]], names[1:]
		}
	}
}
