// Package resource makes tools of the data of a program: of a Go value with methods such as Get and Search, or of
// a table of SQLite or PostgreSQL.
//
//	products, err := resource.NewResource("product", store)       // get_product, search_product, …
//	orders, err := resource.Table(ctx, db, "orders", resource.TableOptions{})
//	agent := &turnpike.Agent{Model: model, Resources: []tool.Provider{products, orders}}
//
// A tool of a resource is a permission of its name: a caller sees the tools that it has the permission for, and each
// call is checked again. A person uses the same resource with [Resource.As], under the same permissions:
//
//	agent ─► loop ─┐
//	/mcp ──────────┼─► get_product: permission ─► audit: started ─► Get(ctx, id) ─► audit: ok
//	person ─► As ──┘
//
// Each call commits on its own. Several calls of a turn have no common transaction: if the second fails, the effect
// of the first stays. What must be atomic belongs into one method.
package resource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Verb is what a tool of a resource does. The tool's name is the verb, an underscore and the name of the resource.
type Verb string

// The verbs of a value by its methods, and of a table. What [Methods] adds has verbs of its own.
const (
	Get    Verb = "get"    // reads one thing by its id
	Search Verb = "search" // reads several things
	Create Verb = "create"
	Update Verb = "update"
	Delete Verb = "delete"
)

// Getter reads one thing: get_NAME. The error for an unknown id wraps [ErrNotFound].
type Getter[T any] interface {
	Get(ctx context.Context, id string) (T, error)
}

// Searcher finds things: search_NAME. Q is a struct or a map with strings as keys; its schema is that of the
// tool's arguments, as for tool.Func. T is usually a slice, or a struct with one.
type Searcher[Q, T any] interface {
	Search(ctx context.Context, query Q) (T, error)
}

// Creator makes a thing: create_NAME. In is a struct or a map. T is what the caller is told, such as the thing or
// its id.
type Creator[In, T any] interface {
	Create(ctx context.Context, in In) (T, error)
}

// Updater changes a thing: update_NAME, with the arguments id and set. In is a struct or a map; the model leaves
// out members with omitempty or omitzero that stay.
type Updater[In, T any] interface {
	Update(ctx context.Context, id string, set In) (T, error)
}

// Deleter removes a thing: delete_NAME.
type Deleter interface {
	Delete(ctx context.Context, id string) error
}

// Methods has further tools for a resource, such as tool.Func("restock", "Order more.", p.Restock): it becomes
// restock_NAME. MCPTools is called once, by [New].
type Methods interface {
	MCPTools() []tool.Tool
}

// The errors of calls. ErrNotFound is also what the methods of a value return for an unknown id.
var (
	ErrNotFound = errors.New("not found")
	ErrUnknown  = errors.New("unknown verb")      // the resource does not have the verb, or not for this caller
	ErrInvalid  = errors.New("invalid arguments") // they do not match the schema of the tool
)

// Resource is a value whose methods are tools. Its methods change it and return it, for use where it is made; they
// must not be called once it is in use. Otherwise it is safe for concurrent use, as its value must be.
type Resource struct {
	name        string // as its maker calls it
	part        string // of the names of its tools
	description string
	verbs       []*verb
	auditors    []Auditor
	err         error // of a method
}

var _ tool.Provider = (*Resource)(nil)

// New returns the resource of a value. It panics where [NewResource] returns an error.
func New(name string, value any) *Resource {
	r, err := NewResource(name, value)
	if err != nil {
		panic(err)
	}
	return r
}

// NewResource returns the resource of a value. What it implements of [Getter], [Searcher], [Creator], [Updater],
// [Deleter] and [Methods] are its tools. It returns an error if it implements none, and if it has a method of such
// a name with another signature.
//
// The name may be any text, such as "product" or the path "shop/products". Tools have the name itself if it
// consists of at most 48 ASCII letters, digits, "_" and "-". Of any other, other characters become "_", and six
// digits follow that depend on the name alone: shop/products and shop.products are two resources, and what else
// there is changes neither's tools.
func NewResource(name string, value any) (*Resource, error) {
	r, err := empty(name)
	if err != nil {
		return nil, err
	}
	v := reflect.ValueOf(value)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("resource %s: the value is nil", name)
	}
	for _, s := range signatures() {
		m := v.MethodByName(s.method)
		if !m.IsValid() {
			continue
		}
		one, err := s.bind(m)
		if err != nil {
			return nil, fmt.Errorf("resource %s: %s.%s: %w", name, v.Type(), s.method, err)
		}
		one.def.Description = fmt.Sprintf(s.description, name)
		r.add(one)
	}
	if m, ok := value.(Methods); ok {
		for _, t := range m.MCPTools() {
			if t == nil {
				return nil, fmt.Errorf("resource %s: a tool of MCPTools is nil", name)
			}
			r.add(methodOf(t))
		}
	} else if m := v.MethodByName("MCPTools"); m.IsValid() {
		return nil, fmt.Errorf("resource %s: %s.MCPTools is a %s, not a func() []tool.Tool", name, v.Type(), m.Type())
	}
	if len(r.verbs) == 0 {
		return nil, fmt.Errorf("resource %s: %s has none of the methods Get, Search, Create, Update, Delete, MCPTools",
			name, v.Type())
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return r, nil
}

// empty returns a resource without tools.
func empty(name string) (*Resource, error) {
	if name == "" {
		return nil, errors.New("a resource has no name")
	}
	return &Resource{name: name, part: namePart(name)}, nil
}

func (r *Resource) add(v *verb) {
	v.of, v.name = r, string(v.verb)+"_"+r.part
	r.verbs = append(r.verbs, v)
}

// Name returns the name of the resource as it was made.
func (r *Resource) Name() string { return r.name }

// Describe adds a text to the descriptions of the tools, such as what the things are.
func (r *Resource) Describe(text string) *Resource {
	r.description = text
	return r
}

// Only leaves the tools of other verbs out.
func (r *Resource) Only(verbs ...Verb) *Resource {
	r.each("Only", verbs, func(*verb) {})
	r.verbs = slices.DeleteFunc(r.verbs, func(v *verb) bool { return !slices.Contains(verbs, v.verb) })
	return r
}

// Idempotent says of verbs that a call with the same arguments changes nothing more: it is repeated if its answer is
// lost. Without it, a call that may write is executed at most once. Tools of [Methods] say it themselves.
func (r *Resource) Idempotent(verbs ...Verb) *Resource {
	return r.each("Idempotent", verbs, func(v *verb) {
		if v.class == tool.Once {
			v.class, v.def.Annotations.Idempotent = tool.Keyed, new(true)
		}
	})
}

// ApproveIf makes the calls of a verb for which asks returns true wait for the approval of a person, by their
// arguments. The same arguments must always have the same answer. Calls of [User.Call] are not asked for: there a
// person, or the program, acts.
func (r *Resource) ApproveIf(which Verb, asks func(arguments json.RawMessage) bool) *Resource {
	return r.each("ApproveIf", []Verb{which}, func(v *verb) { v.asks = asks })
}

// each calls f for each of the verbs. One that the resource does not have is an error of [Resource.Check].
func (r *Resource) each(method string, verbs []Verb, f func(*verb)) *Resource {
	for _, name := range verbs {
		i := slices.IndexFunc(r.verbs, func(v *verb) bool { return v.verb == name })
		if i < 0 {
			err := fmt.Errorf("resource %s: %s names the verb %q; it has %s", r.name, method, name, r.list())
			r.err = errors.Join(r.err, err)
			continue
		}
		f(r.verbs[i])
	}
	return r
}

func (r *Resource) list() string {
	var names []string
	for _, v := range r.verbs {
		names = append(names, string(v.verb))
	}
	return strings.Join(names, ", ")
}

// Audit records every call of the resource, whoever makes it, with one more auditor.
func (r *Resource) Audit(a Auditor) *Resource {
	if a == nil {
		r.err = errors.Join(r.err, fmt.Errorf("resource %s: the auditor is nil", r.name))
		return r
	}
	r.auditors = append(slices.Clip(r.auditors), a)
	return r
}

// Copy returns a resource of the same value. What is said of one of them later does not change the other.
func (r *Resource) Copy() *Resource {
	c := *r
	c.verbs = nil
	for _, v := range r.verbs {
		one := &verb{verb: v.verb, def: v.def, class: v.class, asks: v.asks, call: v.call, inner: v.inner}
		c.add(one)
	}
	c.auditors = slices.Clone(r.auditors)
	return &c
}

// Check returns what is wrong with the resource; nil = nothing. Agents and gateways call it.
func (r *Resource) Check() error {
	switch {
	case r.err != nil:
		return r.err
	case len(r.verbs) == 0:
		return fmt.Errorf("resource %s: no verb is left", r.name)
	}
	seen := map[string]bool{}
	for _, v := range r.verbs {
		switch c, ok := v.inner.(tool.Checked); {
		case v.verb == "":
			return fmt.Errorf("resource %s: a tool of MCPTools has no name", r.name)
		case len(v.name) > maxName || !isPlain(v.name):
			return fmt.Errorf("resource %s: the tool name %s has more than %d characters, or others than letters, digits, _ and -",
				r.name, v.name, maxName)
		case seen[v.name]:
			return fmt.Errorf("resource %s has two tools of the name %s", r.name, v.name)
		case ok && c.Check() != nil:
			return fmt.Errorf("resource %s: %w", r.name, c.Check())
		}
		seen[v.name] = true
		if _, err := v.schema(); err != nil {
			return fmt.Errorf("resource %s: the schema of %s is %w", r.name, v.name, err)
		}
	}
	return nil
}

// Tools implements tool.Provider: it returns the tools that the caller has the permission for.
func (r *Resource) Tools(c tool.Caller) []tool.Tool {
	out := []tool.Tool{}
	for _, v := range r.verbs {
		if c.May(v.name) {
			out = append(out, v)
		}
	}
	return out
}

// Set is a set of resources whose tools have different names.
type Set struct {
	resources []*Resource
}

var (
	_ tool.Provider = (*Set)(nil)
	_ tool.Source   = (*Set)(nil)
)

// NewSet returns the set of the resources. It returns an error if one of them is wrong in itself, or if tools of two
// of them have the same name.
func NewSet(resources ...*Resource) (*Set, error) {
	of := map[string]string{} // by the names of tools
	for _, r := range resources {
		if r == nil {
			return nil, errors.New("a resource of the set is nil")
		}
		if err := r.Check(); err != nil {
			return nil, err
		}
		for _, v := range r.verbs {
			if other, taken := of[v.name]; taken {
				return nil, fmt.Errorf("the resources %q and %q have both a tool %s; give one of them another name",
					other, r.name, v.name)
			}
			of[v.name] = r.name
		}
	}
	return &Set{slices.Clone(resources)}, nil
}

// Tools implements tool.Provider.
func (s *Set) Tools(c tool.Caller) []tool.Tool {
	out := []tool.Tool{}
	for _, r := range s.resources {
		out = append(out, r.Tools(c)...)
	}
	return out
}

// List implements tool.Source: it returns all tools. Each of them checks the permission of its caller.
func (s *Set) List(context.Context) ([]tool.Tool, error) {
	return s.Tools(tool.Caller{Permissions: []string{"*"}}), nil
}

// Permissions returns the names of all tools of the set, sorted: those that a [tool.Caller] may have.
func (s *Set) Permissions() []string {
	names := map[string]bool{}
	for _, r := range s.resources {
		for _, v := range r.verbs {
			names[v.name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
