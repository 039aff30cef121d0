package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/item"
)

// HandoverTTL is how long a caller can take to send the results of its tool calls.
const HandoverTTL = 24 * time.Hour

// Kept is the time to live of what is stored as long as the session of an agent that it belongs to. It does
// not count for org_caps.responses, and is never deleted to keep that cap.
const Kept = 200 * 365 * 24 * time.Hour

// KeptUntil is before the end of everything that is stored for [Kept], and after that of anything else, in
// Unix milliseconds. The schema of a store may have it.
const KeptUntil = 7_000_000_000_000

// ErrChanged reports that a conversation was not replaced: another writer has saved it
// since it was read, or it is not stored any more.
var ErrChanged = errors.New("the conversation has changed")

// Conversation is a stored part of a transcript.
type Conversation struct {
	// Version counts how often the conversation was saved. Find sets it; the next Save
	// passes it on, so that two writers cannot overwrite each other's change. 0 = not
	// stored yet.
	Version int64 `json:"-"`

	RunID string    `json:"run_id"` // the run that produced the items
	Items item.List `json:"items"`

	// Input are the items that the client has sent or added, as it wrote them, in their order. Items has
	// what a model gets of them.
	Input []Entry `json:"input,omitempty"`

	// Full holds the full text of results that were cut, by the id under which the
	// model was told to read them.
	Full map[string]string `json:"full,omitempty"`

	// CallIDs maps our ids of tool calls to the provider's.
	CallIDs map[string]string `json:"call_ids"`

	// Listed are the labels of the servers whose tools were listed in the conversation, up
	// to the items: see [loop.State.Listed].
	Listed []string `json:"listed,omitempty"`

	// Previous is the id of the segment that the items follow; "" = none. The items of
	// that segment are stored under its own key.
	Previous string `json:"previous,omitempty"`

	// Owner is the id of the named conversation that alone shows, continues and deletes a segment, or items
	// that were added; "" = it belongs to the clients of the org. Clients cannot name an owner.
	Owner string `json:"owner,omitempty"`

	// Parts are the ids of what a named conversation consists of, in order: segments, and items that were
	// added. A segment of a named conversation has those that were in front of it.
	Parts []string `json:"parts,omitempty"`

	// Part is which part of its run a segment has, from 1; 0 = it is no segment of a
	// run. The last part that is stored has the items of all.
	Part int `json:"part,omitempty"`

	// Step and Waiting are those of a segment that only says which approvals are still to be
	// decided. Step is the number of a fact, and unique.
	Step    int64          `json:"step,omitempty"`
	Waiting *event.Waiting `json:"waiting,omitempty"`

	// Target is what answered last; zero = nothing did. The next request of the
	// conversation is sent there first, for the provider's prompt cache.
	Target event.Target `json:"target,omitzero"`

	// Origins say where Items of a segment come from, in order; Items beyond them were added when its run ended or waited.
	Origins []Origin `json:"origins,omitempty"`

	// Compaction is that of the run of a segment; nil = the run has shortened nothing. Lists that clients see do not
	// change with it: Items have everything.
	Compaction *Compaction `json:"compaction,omitempty"`

	// RequestJSON and FinalOnly are those of run.StoreOptions, for a segment. For a named conversation and items that
	// were added to it, RequestJSON is what the surface stores of them.
	RequestJSON json.RawMessage `json:"echo,omitempty"`
	FinalOnly   bool            `json:"final_only,omitempty"`
}

// Origin is where some items come from that follow each other.
type Origin struct {
	Items int   `json:"n"`
	At    int64 `json:"at"`              // when they were added, in Unix milliseconds
	Round int   `json:"round,omitempty"` // of an answer of the model
}

// Compaction is what the model sees in place of the begin of a conversation. It belongs to the segment that it is stored
// with: conversations that go on from an earlier one do not have it.
type Compaction struct {
	// Items are what the model sees: a summary, and items that stay as they were or have placeholders.
	Items item.List `json:"items"`

	// After is the place in the conversation behind which the segment was added, and Own how many Items of the segment,
	// from the first, are replaced beside what is in front of that place.
	After Place `json:"after"`
	Own   int   `json:"own,omitempty"`

	// Summarized says that a model has written a summary, Target which, and NanoUSD what that has cost.
	Summarized bool         `json:"summarized,omitempty"`
	Target     event.Target `json:"target,omitzero"`
	NanoUSD    int64        `json:"cost_nano_usd,omitempty"`
}

// Place is a place in a conversation, between two of its parts. The zero value is its begin.
type Place struct {
	Parts  int    `json:"parts,omitempty"`  // how many parts are in front of it
	Digest string `json:"digest,omitempty"` // of their ids: it differs when one of them was deleted or changed
}

// Entry is an item of a conversation as its client wrote it, under the id by which clients name it.
type Entry struct {
	// ID is the client's, or what the gateway has given it. If a client sends an ID twice, it names the
	// first. "" = the item was stored in the first form, and its id follows from its place.
	ID   string          `json:"id,omitempty"`
	JSON json.RawMessage `json:"json"` // in the form of the API that it came from

	// Prefix begins the ID that the gateway gives the item when it is known where it is stored; "" = it has
	// its ID.
	Prefix string `json:"prefix,omitempty"`
}

// InputBytes returns the memory that the items occupy, in bytes.
func InputBytes(input []Entry) (n int) {
	for _, e := range input {
		n += len(e.ID) + len(e.JSON)
	}
	return n
}

// ConversationKey is a key of a stored conversation.
type ConversationKey struct {
	Kind KeyKind
	ID   string
}

// KeyKind is what the id of a ConversationKey identifies.
type KeyKind string

// The kinds of keys.
const (
	// CallID is a tool call that the caller executes. The conversation is the hidden part
	// of the transcript, between the caller's input and the calls. It is never replaced.
	CallID KeyKind = "call"

	// ResponseID is a segment. The conversation is the input and output of a run, or of a part of it,
	// after those of Previous. It is never replaced, so segments that share a Previous are
	// independent.
	ResponseID KeyKind = "response"

	// SessionID is a named conversation, or a list of items that was added to one. A named
	// conversation has no items of its own, but Parts. Each turn of it replaces it.
	// It has no other key.
	SessionID KeyKind = "session"

	// EffectKey is the key that a tool gives the effect of a call. The conversation has the result
	// of the call that had the effect, or no items while nobody knows whether it had. It is
	// replaced, and has no other key.
	EffectKey KeyKind = "effect"

	// RequestKey is the Idempotency-Key of a principal, for a request that changes conversations
	// and starts no run. The conversation says what the request makes, and has no items. It is
	// replaced, and has no other key.
	RequestKey KeyKind = "request"
)

// String returns the key as text, which is unique.
func (k ConversationKey) String() string { return string(k.Kind) + ":" + k.ID }

// title names what is stored under the key, for people.
func (k ConversationKey) title() string {
	switch k.Kind {
	case CallID:
		return "the conversation of call " + k.ID
	case SessionID:
		return "conversation " + k.ID
	case EffectKey:
		return "the effect " + k.ID
	case RequestKey:
		return "the request with the Idempotency-Key " + k.ID
	}
	return string(k.Kind) + " " + k.ID
}

// Check returns an error if a store must not save c under the keys for ttl.
func (c Conversation) Check(ttl time.Duration, keys []ConversationKey) error {
	replaced := false
	for i, k := range keys {
		switch {
		case slices.Contains(keys[:i], k):
			return fmt.Errorf("conversation: the key %s twice", k)
		case k.ID == "":
			return fmt.Errorf("conversation: the id of a %s is empty", k.Kind)
		case !slices.Contains([]KeyKind{CallID, ResponseID, SessionID, EffectKey, RequestKey}, k.Kind):
			return fmt.Errorf("conversation: %q is not a kind of key", k.Kind)
		}
		replaced = replaced || k.Kind == SessionID || k.Kind == EffectKey || k.Kind == RequestKey
	}
	switch {
	case len(keys) == 0:
		return errors.New("conversation: no key")
	case replaced && len(keys) > 1:
		return fmt.Errorf("conversation: a %s has another key", keys[0].Kind)
	case c.Version != 0 && !replaced:
		return fmt.Errorf("conversation: %s is never replaced", keys[0])
	case ttl <= 0:
		return fmt.Errorf("conversation: time to live %s", ttl)
	}
	return nil
}

// conversationVersion is the version of the stored form. One without Input is stored in the first, which
// builds before the second can read: in that, the input of a segment is in RequestJSON.
const conversationVersion = 2

type storedConversation struct {
	Form int `json:"v"`
	Conversation
}

// Encode returns the stored form of c, without Version.
func (c Conversation) Encode() ([]byte, error) {
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // items are stored unchanged
	form := conversationVersion
	if len(c.Input) == 0 {
		form = 1
	}
	if err := e.Encode(storedConversation{form, c}); err != nil {
		return nil, fmt.Errorf("conversation of run %s: %w", c.RunID, err)
	}
	return body.Bytes(), nil
}

// DecodeHistory is [DecodeConversation] for a conversation that is only continued: it decodes
// no Input, RequestJSON and Waiting, and Parts only if parts is set.
func DecodeHistory(key ConversationKey, body []byte, parts bool) (*Conversation, error) {
	var c Conversation
	err := jsonscan.Object(body, func(name string, value []byte, _ int) error {
		switch name {
		case "v":
			if form, err := strconv.Atoi(string(value)); err != nil || form > conversationVersion {
				return errors.New("another version")
			}
		case "items":
			return c.Items.UnmarshalJSON(value)
		case "run_id":
			c.RunID = jsonscan.Text(value)
		case "previous":
			c.Previous = jsonscan.Text(value)
		case "owner":
			c.Owner = jsonscan.Text(value)
		case "part":
			return json.Unmarshal(value, &c.Part)
		case "step":
			return json.Unmarshal(value, &c.Step)
		case "target":
			return json.Unmarshal(value, &c.Target)
		case "origins":
			return json.Unmarshal(value, &c.Origins)
		case "compaction":
			return json.Unmarshal(value, &c.Compaction)
		case "full":
			return json.Unmarshal(value, &c.Full)
		case "call_ids":
			return json.Unmarshal(value, &c.CallIDs)
		case "listed":
			return json.Unmarshal(value, &c.Listed)
		case "final_only":
			return json.Unmarshal(value, &c.FinalOnly)
		case "parts":
			if parts {
				return json.Unmarshal(value, &c.Parts)
			}
		}
		return nil
	})
	if err == nil {
		return &c, nil
	}
	whole, err := DecodeConversation(key, body) // it says what is wrong, and reads deeper nesting than jsonscan
	if err != nil {
		return nil, err
	}
	return whole.History(parts), nil
}

// History returns c as [DecodeHistory] does.
func (c Conversation) History(parts bool) *Conversation {
	c.Input, c.RequestJSON, c.Waiting = nil, nil, nil
	if !parts {
		c.Parts = nil
	}
	return &c
}

// DecodeConversation decodes the stored form of what is stored under the key. The error is a
// [fault.Error] that wraps an *[Unreadable]: a later build has stored it, or it is damaged.
func DecodeConversation(key ConversationKey, body []byte) (*Conversation, error) {
	var s storedConversation
	err, why := json.Unmarshal(body, &s), "what is stored is damaged"
	if s.Form > conversationVersion { // which may be the cause of another error
		err = fmt.Errorf("it is stored in version %d, and this build reads versions up to %d", s.Form, conversationVersion)
		why = "a newer build has stored it"
	}
	if err == nil {
		return &s.Conversation, nil
	}
	var known struct { // what it takes to delete it; zero if it is damaged
		RunID string   `json:"run_id"`
		Part  int      `json:"part"`
		Parts []string `json:"parts"`
		Owner string   `json:"owner"`
	}
	_ = json.Unmarshal(body, &known)
	return nil, unreadable(key, Conversation{RunID: known.RunID, Part: known.Part, Parts: known.Parts, Owner: known.Owner}, err, why)
}

// DamagedConversation returns the error for a conversation of which something is missing; known is the rest.
func DamagedConversation(key ConversationKey, known Conversation, err error) error {
	return unreadable(key, known, err, "what is stored is damaged")
}

func unreadable(key ConversationKey, known Conversation, err error, why string) error {
	f := fault.New(fault.Internal, "conversation_unreadable", "%s cannot be read by this build of the gateway: %s", key.title(), why)
	f.Err = &Unreadable{Key: key, Err: err, Conversation: &known}
	return f
}
