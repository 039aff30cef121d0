package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

type list[T any] struct {
	Data []T `json:"data"`
}

type deleted struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

// mergePatch applies the request's body to the top-level members of current and
// returns the JSON that the Reader must read. A member that is null gets its default.
// A member that the body gives twice is returned twice: the Reader refuses it.
func mergePatch(r *http.Request, current any) ([]byte, error) {
	patch, err := readPatch(r)
	if err != nil {
		return nil, err
	}
	return merge(patch, current)
}

// readPatch reads the members of the request's body.
func readPatch(r *http.Request) ([]member, error) {
	body, err := surface.ReadJSON(r)
	if err != nil {
		return nil, err
	}
	patch, err := members(body)
	if err != nil {
		return nil, fault.New(fault.Invalid, "invalid_value", "the request body must be a JSON object")
	}
	return patch, nil
}

// merge is mergePatch for members that were read.
func merge(patch []member, current any) ([]byte, error) {
	text, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	merged, err := members(text)
	if err != nil {
		return nil, err
	}
	patched := map[string]bool{}
	for _, p := range patch {
		patched[p.name] = true
	}
	merged = slices.DeleteFunc(merged, func(m member) bool { return patched[m.name] })
	var b bytes.Buffer
	for _, m := range append(merged, patch...) {
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, ",%s:%s", name, m.value)
	}
	return append(append([]byte("{"), bytes.TrimPrefix(b.Bytes(), []byte(","))...), '}'), nil
}

// member is one line of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of a JSON object in their order.
func members(object []byte) (out []member, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // as JSON has it
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// named says which thing is missing or there already.
func named(err error, kind, name string) error {
	var left *org.LeftError
	switch {
	case errors.As(err, &left):
		return fault.New(fault.Conflict, "org_id_used", "%v", left)
	case errors.Is(err, org.ErrChanged):
		changed := fault.New(fault.Conflict, "changed_meanwhile", "another request changed the %s %q at the same time; read it again and repeat the request", kind, name)
		changed.Err = err
		return changed
	case errors.Is(err, org.ErrNotFound):
		return fault.New(fault.NotFound, "not_found", "there is no %s called %q", kind, name)
	case errors.Is(err, org.ErrExists):
		return fault.New(fault.Conflict, "exists", "the %s %q already exists; choose another name", kind, name)
	}
	return err
}

// maxAttempts is how often a change is made while other requests change the same object.
const maxAttempts = 20

// repeat makes a change again while it fails because another request changed the object after it was read.
func repeat(change func() (int, any, error)) (status int, answer any, err error) {
	for range maxAttempts {
		if status, answer, err = change(); !errors.Is(err, org.ErrChanged) {
			break
		}
	}
	return status, answer, err
}

func isDeclared(kind, name string) error {
	return fault.New(fault.Conflict, "declared", "the %s %q is declared in the configuration file and can only be changed there", kind, name)
}
