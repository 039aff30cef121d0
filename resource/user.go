package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// User is a resource as one caller uses it without a model, such as the handler of a web page on behalf of a person.
type User struct {
	resource *Resource
	caller   tool.Caller
}

// As returns the resource as the caller uses it. Its calls have the permissions, the checks and the audit records that
// those of an agent have on behalf of the same caller.
func (r *Resource) As(c tool.Caller) User { return User{r, c} }

// Verbs returns the verbs that the caller may use.
func (u User) Verbs() []Verb {
	var out []Verb
	for _, v := range u.resource.verbs {
		if u.caller.May(v.name) {
			out = append(out, v.verb)
		}
	}
	return out
}

// Call executes a verb with arguments that encode as the JSON object that the tool takes, and decodes its result into
// out; nil discards it. A verb that the resource does not have, or that the caller may not use, is [ErrUnknown];
// arguments that do not match the schema are [ErrInvalid]. The error of the value's method is wrapped. Approvals and
// effect keys are for calls of agents: here each call is executed.
func (u User) Call(ctx context.Context, name Verb, in, out any) error {
	i := slices.IndexFunc(u.resource.verbs, func(v *verb) bool { return v.verb == name })
	if i < 0 {
		return fmt.Errorf("resource %s: %w %q", u.resource.name, ErrUnknown, name)
	}
	v := u.resource.verbs[i]
	arguments, err := v.arguments(in)
	c := tool.Call{Attempt: 1, Arguments: arguments, Class: v.Class(), Caller: u.caller}
	if err != nil && u.caller.May(v.name) { // others do not learn what the arguments are
		return fmt.Errorf("resource %s: %s: %w", u.resource.name, name, err)
	}
	r, err := v.Call(ctx, c)
	switch {
	case err != nil:
		return fmt.Errorf("resource %s: %s: %w", u.resource.name, name, err)
	case errors.Is(r.Cause, ErrUnknown) && r.IsError:
		return fmt.Errorf("resource %s: %w %q", u.resource.name, ErrUnknown, name)
	case r.IsError && r.Cause != nil:
		return fmt.Errorf("resource %s: %s: %w", u.resource.name, name, inFull(r.Cause))
	case r.IsError:
		return fmt.Errorf("resource %s: %s: %s", u.resource.name, name, item.PlainText(r.Parts))
	case out == nil:
		return nil
	}
	text := []byte(r.Structured)
	if text == nil {
		text = []byte(item.PlainText(r.Parts))
	}
	if s, ok := out.(*string); ok && !json.Valid(text) {
		*s = string(text)
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("resource %s: %s was carried out, and its result cannot be decoded: %w", u.resource.name, name, err)
	}
	return nil
}

// inFull returns the error with what models do not read.
func inFull(err error) error {
	if d, ok := errors.AsType[*databaseError](err); ok && d.text != d.cause.Error() {
		return fmt.Errorf("%w: %w", err, d.cause)
	}
	return err
}

// arguments returns the JSON of the arguments, which match the schema.
func (v *verb) arguments(in any) (json.RawMessage, error) {
	if in == nil {
		in = struct{}{}
	}
	text, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	s, err := v.schema()
	if err != nil {
		return nil, err
	}
	var why []string
	for _, found := range s.Validate(text) {
		why = append(why, strings.TrimPrefix(found.Path+": "+found.Message, ": "))
	}
	if why != nil {
		return nil, fmt.Errorf("%w: %s", ErrInvalid, strings.Join(why, "; "))
	}
	return text, nil
}
