package tool

import (
	"context"
	"slices"
)

// Caller is on whose behalf a tool is called. The zero value is nobody, who may do nothing.
type Caller struct {
	ID string // as the program knows it, for the audit log; "" = unknown

	// Permissions are the names of the tools, and of the tools of resources such as
	// get_product, that the caller may use; "*" = all.
	Permissions []string
}

// May reports whether the caller has the permission.
func (c Caller) May(permission string) bool {
	return slices.Contains(c.Permissions, permission) || slices.Contains(c.Permissions, "*")
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
