package surface

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// Fields are the members of an object of a body. Each method reads one and removes it. A member that is
// missing changes nothing, and null is the zero value. The first mistake is returned by Done.
type Fields struct {
	Path string // of the object; "" = the body
	Err  error  // the first mistake so far

	values map[string]json.RawMessage
	known  []string // the names that were asked for
}

// ReadFields reads a body that is an object.
func ReadFields(r *http.Request, account *memlimit.Account) (*Fields, error) {
	_, members, err := readMembers(r, account, false)
	return fieldsOf(members), err
}

// ReadOptionalFields is ReadFields for a body that may be empty.
func ReadOptionalFields(r *http.Request, account *memlimit.Account) (*Fields, error) {
	_, members, err := readMembers(r, account, true)
	return fieldsOf(members), err
}

// ReadRewind reads the body of a rewind: the run before which the history is to end.
func ReadRewind(r *http.Request, account *memlimit.Account) (run string, err error) {
	f, err := ReadFields(r, account)
	if err != nil {
		return "", err
	}
	f.Text("before_run", &run)
	if err = f.Done(); err == nil && run == "" {
		err = fault.New(fault.Invalid, "missing_required_parameter",
			"before_run is required: the id of the run, or of its response, that is to leave the history with all that follows").In("before_run")
	}
	return run, err
}

func fieldsOf(members []Member) *Fields {
	f := &Fields{values: make(map[string]json.RawMessage, len(members))}
	for _, m := range members {
		f.values[m.Name] = m.Value
	}
	return f
}

// FieldsOf returns the members of an object at a path of a body.
func FieldsOf(path string, object []byte) *Fields {
	f := &Fields{Path: path}
	if err := json.Unmarshal(object, &f.values); err != nil || f.values == nil {
		f.Fail("", "must be a JSON object")
	}
	return f
}

// ReadQuietFields is [ReadFields] for a body that can have secrets: an error about its syntax quotes nothing of it.
func ReadQuietFields(r *http.Request, account *memlimit.Account) (*Fields, error) {
	f, err := ReadFields(r, account)
	if fault.From(err).Reason == "invalid_json" {
		return nil, fault.New(fault.Invalid, "invalid_json", "the request body is not a valid JSON object")
	}
	return f, err
}

// ReadSecret reads a body whose only member is a text that is secret. Its errors quote nothing of the body:
// the secret can stand in the place of a name, too.
func ReadSecret(r *http.Request, account *memlimit.Account, name string) (text string, err error) {
	f, err := ReadQuietFields(r, account)
	if err != nil {
		return "", err
	}
	given := f.Has(name)
	if f.Text(name, &text); !given || f.Done() != nil {
		return "", fault.New(fault.Invalid, "invalid_value", `the request body must be {%q: "…"}, and the value must be a string`, name)
	}
	return text, nil
}

// At returns the path of a member.
func (f *Fields) At(name string) string { return strings.Trim(f.Path+"."+name, ".") }

// Fail keeps the first mistake. The message follows the path of the member; "" = the object.
func (f *Fields) Fail(name, format string, args ...any) {
	at, message := f.At(name), fmt.Sprintf(format, args...)
	if at == "" {
		message = "the body " + message
	} else {
		message = at + ": " + message
	}
	f.Keep(InvalidValue(at, "%s", message))
}

// Keep keeps a mistake, for example one inside a member, unless there is one already.
func (f *Fields) Keep(err error) {
	if f.Err == nil {
		f.Err = err
	}
}

// Has reports whether a member is there and was not read yet.
func (f *Fields) Has(name string) bool { return f.values[name] != nil }

// Rest returns the members that were not read yet.
func (f *Fields) Rest() map[string]json.RawMessage { return f.values }

// Take removes a member and returns its value, and whether it is there.
func (f *Fields) Take(name string) (json.RawMessage, bool) {
	f.known = append(f.known, name)
	v, ok := f.values[name]
	delete(f.values, name)
	return v, ok
}

// IsNull reports whether a value of a member is null.
func IsNull(v json.RawMessage) bool { return string(bytes.TrimSpace(v)) == "null" }

// Field decodes a member into what into points to. want completes "must be".
func Field[T any](f *Fields, name, want string, into *T) {
	v, ok := f.Take(name)
	if !ok {
		return
	}
	var value T
	if !IsNull(v) && json.Unmarshal(v, &value) != nil {
		f.Fail(name, "must be %s", want)
		return
	}
	*into = value
}

// Text reads a string.
func (f *Fields) Text(name string, into *string) { Field(f, name, "a string", into) }

// Int reads a whole number.
func (f *Fields) Int(name string, into *int) { Field(f, name, "a whole number", into) }

// Number reads a whole number, which null makes nil.
func (f *Fields) Number(name string, into **int) { Field(f, name, "a whole number", into) }

// Decimal reads a number, which null makes nil.
func (f *Fields) Decimal(name string, into **float64) { Field(f, name, "a number", into) }

// Texts reads an object of strings. A value that is null is refused: it would be stored as the empty text.
func (f *Fields) Texts(name string, into *map[string]string) {
	given := f.Has(name)
	var all map[string]*string
	if Field(f, name, "an object of strings", &all); !given {
		return
	}
	out := map[string]string{}
	for key, text := range all {
		if text == nil {
			f.Fail(name, "must be an object of strings, and %.80q is null", key)
			return
		}
		out[key] = *text
	}
	if *into = out; len(out) == 0 {
		*into = nil
	}
}

// Bool reads a member whose default is otherwise.
func (f *Fields) Bool(name string, otherwise bool, into *bool) {
	if IsNull(f.values[name]) {
		f.Take(name)
		*into = otherwise
		return
	}
	Field(f, name, "true or false", into)
}

// List returns the elements of a list; nil, false if the member is missing.
func (f *Fields) List(name string) (all []json.RawMessage, given bool) {
	given = f.Has(name)
	Field(f, name, "a list", &all)
	return all, given
}

// Done returns the first mistake; a member that nothing has read is one.
func (f *Fields) Done() error {
	if f.Err == nil && len(f.values) > 0 {
		name := slices.Sorted(maps.Keys(f.values))[0]
		f.Err = Unknown("member", f.At(name), name, f.known...)
	}
	return f.Err
}

// OnlyMembers refuses a body with other members than these.
func OnlyMembers(body map[string]json.RawMessage, known ...string) error {
	for _, name := range slices.Sorted(maps.Keys(body)) {
		if !slices.Contains(known, name) {
			return Unknown("member", name, name, known...)
		}
	}
	return nil
}

// CheckMembers refuses an object at a place in the body with other members than these. A value of another kind has no members.
func CheckMembers(at string, object []byte, known ...string) error {
	for name := range jsonscan.Members(jsonscan.TrimSpace(object)) {
		if !slices.Contains(known, string(name)) {
			return Unknown("member", at+"."+string(name), string(name), known...)
		}
	}
	return nil
}
