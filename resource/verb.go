package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/tool"
)

// verb is a tool of a resource.
type verb struct {
	verb  Verb
	def   tool.Definition // without the name
	class tool.Class
	asks  func(json.RawMessage) bool                                        // nil = none needs an approval
	call  func(ctx context.Context, arguments json.RawMessage) (any, error) // nil = inner is called
	inner tool.Tool                                                         // of Methods; nil = call is called

	of   *Resource
	name string // of the tool

	once     sync.Once
	compiled *schema.Schema
	err      error
}

var (
	_ tool.Classed = (*verb)(nil)
	_ tool.Asker   = (*verb)(nil)
	_ tool.Keyer   = (*verb)(nil)
	_ tool.Priced  = (*verb)(nil)
	_ tool.Checked = (*verb)(nil)
)

// methodOf returns the verb that a tool of [Methods] is.
func methodOf(t tool.Tool) *verb {
	def := t.Definition()
	return &verb{verb: Verb(def.Name), def: def, class: tool.ClassOf(t), inner: t}
}

// Definition implements tool.Tool.
func (v *verb) Definition() tool.Definition {
	def := v.def
	def.Name = v.name
	if v.of.description != "" {
		def.Description += "\n\n" + v.of.description
	}
	return def
}

// Class implements tool.Classed.
func (v *verb) Class() tool.Class { return v.class }

// Check implements tool.Checked.
func (v *verb) Check() error { return v.of.Check() }

// Asks implements tool.Asker.
func (v *verb) Asks(arguments json.RawMessage) bool {
	if a, ok := v.inner.(tool.Asker); ok && a.Asks(arguments) {
		return true
	}
	return v.asks != nil && v.asks(arguments)
}

// EffectKey implements tool.Keyer. Methods of two resources may have the same name.
func (v *verb) EffectKey(arguments json.RawMessage) string {
	if k, ok := v.inner.(tool.Keyer); ok {
		if key := k.EffectKey(arguments); key != "" {
			return v.name + ":" + key
		}
	}
	return ""
}

// Cost implements tool.Priced.
func (v *verb) Cost() tool.Money {
	if p, ok := v.inner.(tool.Priced); ok {
		return p.Cost()
	}
	return tool.Money{}
}

// Call implements tool.Tool.
func (v *verb) Call(ctx context.Context, c tool.Call) (tool.Result, error) {
	if !c.Caller.May(v.name) {
		if len(v.of.auditors) > 0 {
			r := v.record(c)
			r.Status = Denied
			if err := v.audit(ctx, r); err != nil {
				return tool.Result{}, &auditError{"the audit log cannot be written at the moment", err}
			}
		}
		r := tool.Error("unknown tool " + v.name) // as if it did not exist
		r.Cause = ErrUnknown
		return r, nil
	}
	return v.audited(ctx, c)
}

// execute executes a call of a caller who may make it.
func (v *verb) execute(ctx context.Context, c tool.Call) (tool.Result, error) {
	ctx = tool.With(ctx, c)
	if v.inner != nil {
		return v.inner.Call(ctx, c)
	}
	arguments := c.Arguments
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	out, err := v.call(ctx, arguments)
	if err == nil {
		return resultOf(out)
	}
	var fatal tool.Blocked
	var lost *lostError
	switch {
	case ctx.Err() != nil && !errors.Is(err, errDefinite), errors.As(err, &fatal), errors.As(err, &lost),
		errors.Is(err, tool.ErrNotSent):
		return tool.Result{}, err
	}
	r := tool.Error(err.Error())
	r.Cause = err
	return r, nil
}

// lostError is the error of a call that may have been carried out.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the answer of the database was lost" }
func (e *lostError) Unwrap() error { return e.err }

// errDefinite is wrapped by errors of calls that certainly had no effect, also if their context has ended.
var errDefinite = errors.New("no effect")

// resultOf returns what a method has returned as the model gets it.
func resultOf(out any) (tool.Result, error) {
	switch out := out.(type) {
	case tool.Result:
		return out, nil
	case json.RawMessage:
		return structured(out), nil
	}
	text, err := json.Marshal(out)
	if err != nil {
		r := tool.Error("the result cannot be encoded as JSON: " + err.Error())
		r.Cause = err
		return r, nil
	}
	return structured(text), nil
}

func structured(text json.RawMessage) tool.Result {
	r := tool.Text(string(text))
	if len(text) > 0 && text[0] == '{' {
		r.Structured = text
	}
	return r
}

// schema returns the schema of the arguments.
func (v *verb) schema() (*schema.Schema, error) {
	v.once.Do(func() { v.compiled, v.err = schema.Compile(v.def.InputSchema) })
	return v.compiled, v.err
}

// signature is a method that is a verb.
type signature struct {
	verb        Verb
	method      string
	form        string // of the method, for errors
	byID        bool   // its first argument is an id
	takes       bool   // its last argument is a struct or a map
	returns     bool   // it returns something beside its error
	description string
	class       tool.Class
}

func signatures() []signature {
	return []signature{
		{Get, "Get", "func(context.Context, string) (T, error)", true, false, true, "Get one %s by its id.", tool.Read},
		{Search, "Search", "func(context.Context, Q) (T, error)", false, true, true, "Search %s.", tool.Read},
		{Create, "Create", "func(context.Context, In) (T, error)", false, true, true, "Create %s.", tool.Once},
		{Update, "Update", "func(context.Context, string, In) (T, error)", true, true, true, "Change the %s with the id.", tool.Once},
		{Delete, "Delete", "func(context.Context, string) error", true, false, false, "Delete the %s with the id.", tool.Once},
	}
}

// annotations returns the hints of a verb.
func annotations(v Verb) tool.Annotations {
	switch v {
	case Get, Search:
		return tool.Annotations{ReadOnly: new(true)}
	case Create:
		return tool.Annotations{ReadOnly: new(false), Destructive: new(false)}
	}
	return tool.Annotations{ReadOnly: new(false), Destructive: new(true)}
}

// bind returns the verb that a method is.
func (s signature) bind(m reflect.Value) (*verb, error) {
	t := m.Type()
	in := []reflect.Type{reflect.TypeFor[context.Context]()}
	if s.byID {
		in = append(in, reflect.TypeFor[string]())
	}
	fixed, outs := len(in), 1
	if s.takes {
		in = append(in, nil)
	}
	if s.returns {
		outs = 2
	}
	fits := t.NumIn() == len(in) && t.NumOut() == outs && !t.IsVariadic() && t.Out(outs-1) == reflect.TypeFor[error]()
	for i := range fixed {
		fits = fits && t.In(i) == in[i]
	}
	if !fits {
		return nil, fmt.Errorf("it is a %s, not a %s; rename it, or wrap the value", t, s.form)
	}
	v := &verb{verb: s.verb, class: s.class, def: tool.Definition{Annotations: annotations(s.verb)}}
	var last reflect.Type
	if s.takes {
		if last = t.In(fixed); last.Kind() != reflect.Struct && last.Kind() != reflect.Map {
			return nil, fmt.Errorf("its last argument is a struct or a map, not %s", last)
		}
	}
	text, err := s.schemaOf(last)
	if err != nil {
		return nil, fmt.Errorf("schema of its arguments: %w", err)
	}
	v.def.InputSchema = text
	v.call = func(ctx context.Context, arguments json.RawMessage) (any, error) {
		return s.call(ctx, m, last, arguments)
	}
	return v, nil
}

// schemaOf returns the schema of the arguments.
func (s signature) schemaOf(last reflect.Type) (json.RawMessage, error) {
	var of *jsonschema.Schema
	if s.takes {
		var err error
		if of, err = jsonschema.ForType(last, &jsonschema.ForOptions{}); err != nil {
			return nil, err
		}
	}
	if !s.byID {
		return json.Marshal(of)
	}
	properties, required := map[string]any{"id": map[string]any{"type": "string"}}, []string{"id"}
	if s.takes {
		properties["set"], required = of, append(required, "set")
	}
	return json.Marshal(map[string]any{
		"type": "object", "properties": properties, "required": required, "additionalProperties": false,
	})
}

// call calls the method.
func (s signature) call(
	ctx context.Context, m reflect.Value, last reflect.Type, arguments json.RawMessage,
) (any, error) {
	args := []reflect.Value{reflect.ValueOf(ctx)}
	rest := arguments
	if s.byID {
		var by struct {
			ID  *string         `json:"id"`
			Set json.RawMessage `json:"set"`
		}
		if err := json.Unmarshal(arguments, &by); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if by.ID == nil || s.takes && len(by.Set) == 0 {
			return nil, fmt.Errorf("%w: id or set is missing", ErrInvalid)
		}
		args, rest = append(args, reflect.ValueOf(*by.ID)), by.Set
	}
	if s.takes {
		in := reflect.New(last)
		if err := json.Unmarshal(rest, in.Interface()); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		args = append(args, in.Elem())
	}
	out := m.Call(args)
	if err, _ := out[len(out)-1].Interface().(error); err != nil {
		return nil, err
	}
	if !s.returns {
		return json.RawMessage(`{"done":true}`), nil
	}
	return out[0].Interface(), nil
}
