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

// ownerPrefix begins the owner of a caller with an org.
const ownerPrefix = "org:"

// Owner returns a text that differs for different callers, whatever their permissions: the ID of a caller without
// an Org. It is the key of what belongs to the caller, such as sessions. [CallerOf] is its reverse.
func (c Caller) Owner() string {
	if c.Org == "" && !strings.HasPrefix(c.ID, ownerPrefix) {
		return c.ID
	}
	return ownerPrefix + strconv.Quote(c.Org) + c.ID
}

// CallerOf returns the caller that an owner is, without permissions.
func CallerOf(owner string) Caller {
	rest, ok := strings.CutPrefix(owner, ownerPrefix)
	if !ok {
		return Caller{ID: owner}
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return Caller{ID: owner}
	}
	org, _ := strconv.Unquote(quoted) // it is quoted
	return Caller{ID: rest[len(quoted):], Org: org}
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
