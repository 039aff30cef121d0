package tool

import (
	"context"
	"slices"
	"strconv"
	"strings"
)

// Caller is on whose behalf a tool is called. The zero value is nobody, who may do nothing.
type Caller struct {
	ID  string // as the program knows it, for the audit log; "" = unknown
	Org string // of the key, for a client of a gateway; "" in a program without one. IDs are unique within an org

	// Permissions are the names of the tools, and of the tools of resources such as
	// get_product, that the caller may use; "*" = all.
	Permissions []string
}

// May reports whether the caller has the permission.
func (c Caller) May(permission string) bool {
	return slices.Contains(c.Permissions, permission) || slices.Contains(c.Permissions, "*")
}

// Key returns what identifies the caller, whatever its permissions.
func (c Caller) Key() CallerKey { return CallerKey{ID: c.ID, Org: c.Org} }

// CallerKey identifies a caller: what belongs to it, such as a session, is found by it. Keys can be compared. As JSON a
// key is one text, the ID of a caller without an Org.
type CallerKey struct{ ID, Org string }

// Caller returns the caller, without permissions.
func (k CallerKey) Caller() Caller { return Caller{ID: k.ID, Org: k.Org} }

// orgPrefix begins the text of a key with an org.
const orgPrefix = "org:"

// String returns a text that differs for different keys.
func (k CallerKey) String() string {
	if k.Org == "" && !strings.HasPrefix(k.ID, orgPrefix) {
		return k.ID
	}
	return orgPrefix + strconv.Quote(k.Org) + k.ID
}

// MarshalText implements [encoding.TextMarshaler] with [CallerKey.String].
func (k CallerKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. Every text is that of a key.
func (k *CallerKey) UnmarshalText(text []byte) error {
	*k = CallerKey{ID: string(text)}
	rest, ok := strings.CutPrefix(k.ID, orgPrefix)
	if !ok {
		return nil
	}
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		k.ID = rest[len(quoted):]
		k.Org, _ = strconv.Unquote(quoted) // it is quoted
	}
	return nil
}

// Provider offers tools that depend on the caller, such as the verbs of a resource.
type Provider interface {
	// Tools returns the tools that the caller may use, in the provider's own order. Call of
	// each of them checks [Call].Caller again: a call may come from a caller who has lost a
	// permission since, or never had it. Tools is safe for concurrent use.
	Tools(Caller) []Tool
}

type callKey struct{}

// With returns ctx for the execution of the call: [From] returns it. Whoever executes a tool
// calls it with such a context, also outside of a run.
func With(ctx context.Context, c Call) context.Context { return context.WithValue(ctx, callKey{}, c) }

// From returns the call that ctx belongs to: its id (Key), the id of its run, its attempt, its
// caller and its idempotency key. Outside of a call it returns the zero value, whose caller may
// do nothing.
func From(ctx context.Context) Call {
	c, _ := ctx.Value(callKey{}).(Call)
	return c
}
