// Package caller is who sends a request: their key, the org as it is at that moment, and what the request is charged to.
package caller

import (
	"context"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Caller is the sender of a request and the state of their org at that moment.
type Caller struct {
	Org       *org.Org
	Principal org.Principal
	Servers   []catalog.Server // the enabled ones, in configuration order

	// Switched is the server with the built-in tools that the switches of the org offer to requests; nil = none.
	Switched *catalog.Server

	// RequestID is the id of the request, which its answer contains; "" = none yet.
	RequestID string

	// Account is charged with the memory that the gateway retains for this request;
	// nil = nothing is counted. It is closed when the request was answered, unless a
	// run that continues also holds it.
	Account *memlimit.Account

	// Admission admits the request to the store; nil = immediately.
	Admission Admission
}

// Admission limits how many requests of an org use the store at a time. Implemented by
// package httpd. It is safe for concurrent use.
type Admission interface {
	// Admit waits until a request of the org may use the store. orgID is "" for the
	// operator. The caller must call leave when the request has used the store; further
	// calls have no effect. Admit returns an error if ctx ends before, or if too many
	// requests wait.
	Admit(ctx context.Context, orgID string) (leave func(), err error)

	// Settle returns when every replica of the gateway obeys the changes that this one has stored, or when ctx
	// ends. A change is answered after it.
	Settle(ctx context.Context)

	// Hold counts an answer of so many bytes that the client of a key is about to read. The
	// caller must call done when the client has read it. Hold returns an error if the clients
	// of the key read too many large answers.
	Hold(orgID, principal string, bytes int) (done func(), err error)
}

// Author returns who changes something now: the key, or the operator.
func (c Caller) Author(now time.Time) org.Author {
	by := org.Author{Principal: org.Operator, RequestID: c.RequestID, At: now.UnixMilli()}
	if c.Org != nil {
		by.Principal = c.Principal.ID
	}
	return by
}

// Admit waits until the request may use the store: see [Admission].
func (c Caller) Admit(ctx context.Context) (leave func(), err error) {
	switch {
	case c.Admission == nil:
		return func() {}, nil
	case c.Org == nil: // the operator
		return c.Admission.Admit(ctx, "")
	}
	return c.Admission.Admit(ctx, c.Org.ID)
}

// Settle waits until the changes hold everywhere: see [Admission].
func (c Caller) Settle(ctx context.Context) {
	if c.Admission != nil {
		c.Admission.Settle(ctx)
	}
}

// Hold counts an answer until its client has read it, and charges it to the account: see [Admission].
func (c Caller) Hold(bytes int) (done func(), err error) {
	if err := c.Account.Acquire(bytes); err != nil {
		return nil, err
	}
	switch {
	case c.Admission == nil:
		return func() {}, nil
	case c.Org == nil: // the operator
		return c.Admission.Hold("", "", bytes)
	}
	return c.Admission.Hold(c.Org.ID, c.Principal.ID, bytes)
}

// LoopActive reports whether chat requests run the loop: the org has the feature, and at
// least one enabled server.
func (c Caller) LoopActive() bool { return c.Org.MCPOutbound && len(c.Servers) > 0 }
