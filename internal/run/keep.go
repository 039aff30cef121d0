package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// StoreOptions is what a surface stores with the segment of a conversation.
type StoreOptions struct {
	// RequestJSON is JSON of the surface, from which it makes its answer again.
	RequestJSON json.RawMessage `json:"echo"`

	// Input are the items that the client has sent.
	Input []journal.Entry `json:"input,omitempty"`

	// FinalOnly says that the client gets the text of the last round only.
	FinalOnly bool `json:"final_only,omitempty"`

	// Owner is the named conversation that alone shows, continues and deletes the segment: see
	// [journal.Conversation]. "" = none.
	Owner string `json:"owner,omitempty"`

	// For is how long the conversation is stored.
	For time.Duration `json:"for_ns"`
}

// named returns the options for a segment, in which each item of the input has an id: one that the client did
// not name is named after the segment and its place.
func (o *StoreOptions) named(s conversation.Segment) *StoreOptions {
	if o == nil || !slices.ContainsFunc(o.Input, func(e journal.Entry) bool { return e.Prefix != "" }) {
		return o
	}
	named := *o
	named.Input = slices.Clone(o.Input)
	suffix := conversation.SuffixOfPart(s.ID())
	for i, e := range named.Input {
		if e.Prefix != "" {
			named.Input[i].ID, named.Input[i].Prefix = fmt.Sprintf("%s%s_in%d", e.Prefix, suffix, i), ""
		}
	}
	return &named
}

// bytes is the memory that the options occupy, in bytes.
func (o *StoreOptions) bytes() int { return len(o.RequestJSON) + journal.InputBytes(o.Input) }

// beginning is the transcript that a request begins with.
type beginning struct {
	*conversation.Beginning
	memory *memlimit.Share // charged with the conversation, for the holder of the beginning
}

// beginning returns the transcript that the request begins with. The stored conversation is read once:
// the run begins with what was read before it. The account of the request is charged with it until
// forget, which the last user calls.
func (r *Request) beginning(ctx context.Context, o *Options) (*beginning, error) {
	if r.begins == nil {
		memory := r.Account.Share()
		asked := conversation.Request{
			Org: r.Org, Principal: r.Principal, System: r.System, Items: r.Items, Places: r.Places, Continues: r.Continues,
			Sees: seesOf(r.Policy.Context.Mode),
		}
		read, err := conversation.Begin(ctx, o.Conversations, o.Archive, asked, memory)
		if errors.Is(err, conversation.ErrNotStored) && !r.Continues.Named && !r.Continues.Resent {
			var again bool
			if again, err = o.notEnded(ctx, r); again {
				read, err = conversation.Begin(ctx, o.Conversations, o.Archive, asked, memory)
			}
		}
		if err != nil {
			memory.Close()
			if bad, refused := new(journal.Unreadable), new(fault.Error); errors.As(err, &bad) || errors.As(err, &refused) {
				return nil, err
			}
			return nil, journal.Unavailable(err)
		}
		r.begins = &beginning{read, memory}
	}
	return r.begins, nil
}

// seesOf returns what a model sees of earlier compactions: what the mode would make of the prompt itself.
func seesOf(mode loop.ContextMode) conversation.Sees {
	switch mode {
	case loop.ContextAuto:
		return conversation.SeesSummaries
	case loop.ContextPrune:
		return conversation.SeesPlaceholders
	}
	return conversation.SeesAll
}

// forget drops what beginning has read.
func (r *Request) forget() {
	if r.begins != nil {
		r.begins.memory.Close()
		r.begins = nil
	}
}

// previousOf returns the id of the segment that a request continues; "" = none.
func previousOf(r conversation.Ref) string {
	if r.Named || r.Resent {
		return ""
	}
	return r.ID
}

// namedOf returns the id of the named conversation that a request continues; "" = none.
func namedOf(r conversation.Ref) string {
	if r.Named {
		return r.ID
	}
	return ""
}

// continues returns what the stored request continues. It was read when the run began: errors name nothing
// of the request any more.
func (q *storedRequest) continues() conversation.Ref {
	if q.Session != "" {
		return conversation.Ref{ID: q.Session, Named: true}
	}
	return conversation.Ref{ID: q.Previous}
}
