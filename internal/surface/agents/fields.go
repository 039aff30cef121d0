package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// fields are the members of an object of a body. Each method reads one and removes it. A member that is
// missing changes nothing, and null is the zero value. The first mistake is returned by done.
type fields struct {
	path   string // of the object; "" = the body
	values map[string]json.RawMessage
	err    error
}

// readFields reads a body that is an object.
func readFields(r *http.Request) (*fields, error) {
	body, err := surface.ReadJSON(r)
	if err != nil {
		return nil, err
	}
	f := fieldsOf("", body)
	return f, f.err
}

func fieldsOf(path string, object []byte) *fields {
	f := &fields{path: path}
	if err := json.Unmarshal(object, &f.values); err != nil || f.values == nil {
		f.fail("", "must be a JSON object")
	}
	return f
}

func (f *fields) at(name string) string {
	return strings.Trim(f.path+"."+name, ".")
}

// fail keeps the first mistake.
func (f *fields) fail(name, format string, args ...any) {
	if f.err != nil {
		return
	}
	at, message := f.at(name), fmt.Sprintf(format, args...)
	if at == "" {
		at, message = "", "the body "+message
	} else {
		message = at + ": " + message
	}
	f.err = fault.New(fault.Invalid, "invalid_value", "%s", message).In(at)
}

// take removes a member and returns its value, and whether it is there.
func (f *fields) take(name string) (json.RawMessage, bool) {
	v, ok := f.values[name]
	delete(f.values, name)
	return v, ok
}

func isNull(v json.RawMessage) bool { return string(bytes.TrimSpace(v)) == "null" }

// read decodes a member into what into points to. null is the zero value.
func read[T any](f *fields, name, want string, into *T) {
	v, ok := f.take(name)
	if !ok {
		return
	}
	var value T
	if !isNull(v) && json.Unmarshal(v, &value) != nil {
		f.fail(name, "must be %s", want)
		return
	}
	*into = value
}

func (f *fields) text(name string, into *string)      { read(f, name, "a string", into) }
func (f *fields) integer(name string, into *int)      { read(f, name, "a whole number", into) }
func (f *fields) number(name string, into **int)      { read(f, name, "a whole number", into) }
func (f *fields) decimal(name string, into **float64) { read(f, name, "a number", into) }

// endUser reads the members that name the end user of a run.
func (f *fields) endUser() string {
	var members []surface.Member
	for _, name := range []string{"safety_identifier", "user"} {
		v, _ := f.take(name)
		if v != nil && !isNull(v) && json.Unmarshal(v, new(string)) != nil {
			f.fail(name, "must be a string")
		}
		members = append(members, surface.Member{Name: name, Value: v})
	}
	v, ok := f.take("metadata")
	if ok && !isNull(v) {
		if fieldsOf("", v).err != nil {
			f.fail("metadata", "must be an object")
		}
		members = append(members, surface.Member{Name: "metadata", Value: v})
	}
	return surface.EndUser(members)
}

// texts reads an object of strings. A value that is null is refused: it would be stored as the empty text.
func (f *fields) texts(name string, into *textsByName) {
	if _, given := f.values[name]; !given {
		return
	}
	var all map[string]*string
	read(f, name, "an object of strings", &all)
	out := textsByName{}
	for key, text := range all {
		if text == nil {
			f.fail(name, "must be an object of strings, and %.80q is null", key)
			return
		}
		out[key] = *text
	}
	if *into = out; len(out) == 0 {
		*into = nil
	}
}

// boolean reads a member whose default is otherwise.
func (f *fields) boolean(name string, otherwise bool, into *bool) {
	if v, ok := f.values[name]; ok && isNull(v) {
		f.take(name)
		*into = otherwise
		return
	}
	read(f, name, "true or false", into)
}

type textsByName = map[string]string

// list returns the elements of a list; nil, false if the member is missing.
func (f *fields) list(name string) (all []json.RawMessage, given bool) {
	_, given = f.values[name]
	read(f, name, "a list", &all)
	return all, given
}

// done returns the first mistake; a member that nothing has read is one.
func (f *fields) done() error {
	if f.err == nil && len(f.values) > 0 {
		name := slices.Sorted(maps.Keys(f.values))[0]
		f.err = fault.New(fault.Invalid, "unknown_parameter", "unknown member %.80q", f.at(name)).In(f.at(name))
	}
	return f.err
}
