package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
)

// Function is a Go function as a [Tool]: see [Func]. Its methods change it and return it, for use
// where it is made:
//
//	tool.Func("refund", "Refund an order.", refund).
//		Key(func(in Refund) string { return in.Order }).
//		ApproveIf(func(in Refund) bool { return in.Cents > 10_000 })
//
// They must not be called once a run uses the function.
type Function[In any] struct {
	def     Definition
	call    func(ctx context.Context, in In) (Result, error)
	class   Class
	asks    func(In) bool
	key     func(In) string
	timeout time.Duration
	cost    Money         // of a call
	turn    chan struct{} // has room for the one call that is under way; nil = calls may overlap
	err     error         // of a method
}

var (
	_ Classed = (*Function[struct{}])(nil)
	_ Asker   = (*Function[struct{}])(nil)
	_ Keyer   = (*Function[struct{}])(nil)
	_ Priced  = (*Function[struct{}])(nil)
	_ Checked = (*Function[struct{}])(nil)
)

// Checked is a [Tool] that can be wrong by itself.
type Checked interface {
	Tool
	// Check returns what is wrong with the tool; nil = nothing.
	Check() error
}

// Keyer is a [Tool] whose calls have effects of their own names: two calls with one key are one
// effect, in whatever run.
type Keyer interface {
	Tool
	// EffectKey returns the key of a call; "" = it has none. It is safe for concurrent use.
	EffectKey(arguments json.RawMessage) string
}

// Func returns f as a tool. It panics where [NewFunc] returns an error.
func Func[In, Out any](name, description string, f func(context.Context, In) (Out, error)) *Function[In] {
	fn, err := NewFunc(name, description, f)
	if err != nil {
		panic(err)
	}
	return fn
}

// NewFunc returns f as a tool. The schema of its arguments follows from In, a struct or a map with
// strings as keys: members have the names of their json tags, those without omitempty or omitzero
// are required, and a jsonschema tag is a description. It returns an error for an In without a
// schema. A name has letters, digits, _ and -, and begins with a letter or _: the model sees another one with a hash at
// its end in place of a name that is not so, or is longer than 64 characters.
//
//	type Query struct {
//		City string `json:"city" jsonschema:"Name of the city, in English."`
//		Days int    `json:"days,omitempty"`
//	}
//
// The model gets an Out that is a [Result] as it is, a string as text, and anything else as JSON. It
// also gets the text of an error, and the run goes on; an error that wraps [Blocked] ends the run. A
// value that has no JSON is an error, too. If f returns an error after its context has ended, nobody
// knows what it has done: see [Class].
//
// Without further methods a call is executed at most once, and may be executed at the same time
// as others.
func NewFunc[In, Out any](name, description string, f func(context.Context, In) (Out, error)) (*Function[In], error) {
	if f == nil {
		return nil, fmt.Errorf("tool %s: the function is nil", name)
	}
	if kind := reflect.TypeFor[In]().Kind(); kind != reflect.Struct && kind != reflect.Map {
		return nil, fmt.Errorf("tool %s: arguments are a struct or a map, not %s", name, reflect.TypeFor[In]())
	}
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return nil, fmt.Errorf("tool %s: schema of %s: %w", name, reflect.TypeFor[In](), err)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return nil, fmt.Errorf("tool %s: schema of %s: %w", name, reflect.TypeFor[In](), err)
	}
	return &Function[In]{
		def: Definition{Name: name, Description: description, InputSchema: text},
		call: func(ctx context.Context, in In) (Result, error) {
			out, err := f(ctx, in)
			if err != nil {
				return Result{}, err
			}
			return resultOf(out), nil
		},
	}, nil
}

// Raw returns a tool with a schema that is known when the program runs, a JSON object. f gets the
// arguments as a JSON object.
func Raw(name, description string, schema json.RawMessage, f func(context.Context, json.RawMessage) (Result, error)) *Function[json.RawMessage] {
	fn := &Function[json.RawMessage]{def: Definition{Name: name, Description: description, InputSchema: schema}, call: f}
	if f == nil {
		fn.err = fmt.Errorf("tool %s: the function is nil", name)
	}
	return fn
}

// resultOf returns what a function has returned as the model gets it.
func resultOf(out any) Result {
	switch out := out.(type) {
	case Result:
		return out
	case string:
		return Text(out)
	}
	text, err := json.Marshal(out)
	if err != nil {
		r := Error("the result cannot be encoded as JSON: " + err.Error())
		r.Cause = err
		return r
	}
	r := Text(string(text))
	if len(text) > 0 && text[0] == '{' {
		r.Structured = text
	}
	return r
}

// ReadOnly says that calls change nothing: they may be repeated.
func (f *Function[In]) ReadOnly() *Function[In] {
	f.class, f.def.Annotations.ReadOnly = Read, new(true)
	return f
}

// Idempotent says that a call with the same arguments changes nothing more: it is repeated if its
// answer is lost.
func (f *Function[In]) Idempotent() *Function[In] {
	f.repeatable()
	f.def.Annotations.Idempotent = new(true)
	return f
}

func (f *Function[In]) repeatable() {
	if f.class != Read {
		f.class = Keyed
	}
}

// Destructive says that calls may delete or overwrite something.
func (f *Function[In]) Destructive() *Function[In] {
	f.def.Annotations.Destructive = new(true)
	return f
}

// Serial says that no two calls of the function are under way at the same time in this process.
func (f *Function[In]) Serial() *Function[In] {
	f.turn = make(chan struct{}, 1)
	return f
}

// ApproveIf makes the calls for which asks returns true wait for the approval of a person. The same
// arguments must always have the same answer.
func (f *Function[In]) ApproveIf(asks func(In) bool) *Function[In] {
	f.asks = asks
	return f
}

// Key names the effect of a call, such as the order that it pays: it is the idempotency key of the call
// ([From]), after the name of the tool. Calls with one key are one effect. If one has succeeded, the
// others of the next 30 days, of whatever run in the same store, get its result and are not executed;
// one that failed had no effect. A call whose answer is lost is executed again with the same key, which
// the function passes on to what it calls. "" = the call has no key of its own.
func (f *Function[In]) Key(key func(In) string) *Function[In] {
	f.repeatable()
	f.key = key
	return f
}

// Price says what a call costs, such as USD("0.01"). Calls that were executed, or may have been, count towards the limit on
// money of their run.
func (f *Function[In]) Price(cost Money) *Function[In] {
	f.cost = cost
	return f
}

// Cost implements [Priced].
func (f *Function[In]) Cost() Money { return f.cost }

// Timeout limits the time of a call. Its context ends then.
func (f *Function[In]) Timeout(d time.Duration) *Function[In] {
	f.timeout = d
	return f
}

// Schema changes the schema of the arguments by a JSON merge patch (RFC 7396), for what Go types
// cannot say:
//
//	Schema(`{"properties":{"unit":{"enum":["C","F"]}}}`)
func (f *Function[In]) Schema(patch string) *Function[In] {
	var schema, change any
	if err := json.Unmarshal([]byte(patch), &change); err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("tool %s: patch of the schema: %w", f.def.Name, err))
		return f
	}
	if err := json.Unmarshal(f.def.InputSchema, &schema); err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("tool %s: schema: %w", f.def.Name, err))
		return f
	}
	f.def.InputSchema, _ = json.Marshal(merged(schema, change)) // of decoded JSON
	return f
}

// merged applies a JSON merge patch.
func merged(value, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := value.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for name, change := range changes {
		if change == nil {
			delete(object, name)
			continue
		}
		object[name] = merged(object[name], change)
	}
	return object
}

// Title sets the name of the tool for people.
func (f *Function[In]) Title(title string) *Function[In] {
	f.def.Title = title
	return f
}

// Check implements [Checked]: it returns what was wrong with the arguments of the other methods.
func (f *Function[In]) Check() error { return f.err }

// Definition implements [Tool].
func (f *Function[In]) Definition() Definition { return f.def }

// Class implements [Classed].
func (f *Function[In]) Class() Class { return f.class }

// Asks implements [Asker].
func (f *Function[In]) Asks(arguments json.RawMessage) bool {
	if f.asks == nil {
		return false
	}
	in, err := decode[In](arguments)
	return err != nil || f.asks(in) // a call that cannot be understood is not let through
}

// EffectKey implements [Keyer].
func (f *Function[In]) EffectKey(arguments json.RawMessage) string {
	if f.key == nil {
		return ""
	}
	in, err := decode[In](arguments)
	if err != nil {
		return ""
	}
	if key := f.key(in); key != "" {
		return f.def.Name + ":" + key
	}
	return ""
}

// Call implements [Tool].
func (f *Function[In]) Call(ctx context.Context, c Call) (Result, error) {
	in, err := decode[In](c.Arguments)
	if err != nil {
		return failed(fmt.Errorf("invalid arguments: %w", err)), nil
	}
	if f.turn != nil {
		select {
		case f.turn <- struct{}{}:
			defer func() { <-f.turn }()
		case <-ctx.Done():
			return Result{}, fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx))
		}
	}
	if f.key != nil {
		if key := f.key(in); key != "" {
			c.IdempotencyKey = f.def.Name + ":" + key
		}
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
		defer cancel()
	}
	r, err := f.call(With(ctx, c), in)
	var blocked Blocked
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil, errors.As(err, &blocked), errors.Is(err, ErrNotSent):
		return Result{}, err
	}
	return failed(err), nil
}

// failed is the answer of a function that has returned an error.
func failed(err error) Result {
	r := Error(err.Error())
	r.Cause = err
	return r
}

func decode[In any](arguments json.RawMessage) (in In, err error) {
	if raw, ok := any(&in).(*json.RawMessage); ok {
		*raw = arguments
		return in, nil
	}
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	err = json.Unmarshal(arguments, &in)
	return in, err
}
