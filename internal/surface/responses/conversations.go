package responses

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
)

// conversationPrefix begins the ids of conversations.
const conversationPrefix = "conv_"

// maxAdded is how many items a request may add to a conversation, from the OpenAI document.
const maxAdded = 20

// conversations answers requests for conversations and their items.
type conversations struct {
	lookup
	items    *storedItems
	requests *requestReader
	keys     keyedRequests
	runs     surface.StoredRuns
	files    surface.Files
}

// storedConversation is what is stored of a conversation, beside its parts.
type storedConversation struct {
	CreatedAt int64             `json:"created_at"` // in seconds since 1970
	Metadata  map[string]string `json:"metadata"`
}

// conversationObject is the object of the API.
type conversationObject struct {
	ID     string `json:"id"`
	Object string `json:"object"`
	storedConversation
}

// asObject returns the object of a stored conversation.
func asObject(id string, c *journal.Conversation) (*conversationObject, error) {
	object := &conversationObject{ID: id, Object: "conversation"}
	if err := json.Unmarshal(c.RequestJSON, &object.storedConversation); err != nil {
		return nil, fmt.Errorf("stored conversation %s: %w", id, err)
	}
	return object, nil
}

func noConversation(id, param string) error {
	return fault.New(fault.NotFound, "conversation_not_found", "no conversation has the id %.100q; it was deleted, or its time is over", id).In(param)
}

// lookup finds conversations.
type lookup struct {
	store   journal.Conversations
	keepFor func() time.Duration // how long one is stored
	log     *slog.Logger
}

func (h *lookup) findConversation(ctx context.Context, caller caller.Caller, id string) (*journal.Conversation, error) {
	c, err := conversation.Find(ctx, h.store, caller.Org.ID, conversationPrefix, id)
	if err != nil {
		return nil, surface.Failed(h.log, err)
	}
	if c == nil {
		return nil, noConversation(id, "conversation_id")
	}
	return c, nil
}

// metadataOf returns the metadata of a body; empty if it has none.
func metadataOf(body map[string]json.RawMessage) (map[string]string, error) {
	if value := body["metadata"]; value != nil && string(value) != "null" {
		return decodeMetadata(value)
	}
	return map[string]string{}, nil
}

// CreateConversation answers POST /v1/conversations.
func (h *conversations) CreateConversation(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	body, err := surface.ReadObject(r, caller.Account)
	if err == nil {
		err = surface.OnlyMembers(body, "items", "metadata")
	}
	if err != nil {
		return err
	}
	metadata, err := metadataOf(body)
	if err != nil {
		return err
	}
	var list []json.RawMessage
	if value := body["items"]; value != nil && string(value) != "null" && string(value) != "[]" {
		if list, err = addedItems(value); err != nil {
			return err
		}
	}
	key, err := keyOf(r, caller, "conversations", body)
	if err != nil {
		return err
	}
	var items *part
	k, err := h.keys.begin(r.Context(), caller, key, func() (err error) {
		if err = h.refuseRepeated(r.Context(), caller, nil, list); err == nil {
			items, err = h.newPart(r.Context(), caller, list)
		}
		if err == nil {
			err = h.checkResults(r.Context(), caller, "", items)
		}
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	made := storedConversation{k.CreatedAt, metadata}
	name := conversationPrefix + k.Suffix
	if !k.Done {
		if items == nil { // the request was cut off
			if items, err = h.newPart(ctx, caller, list); err != nil {
				return err
			}
		}
		if err := h.createConversation(ctx, caller, k, name, made, items); err != nil {
			return err
		}
	}
	return surface.WriteJSON(w, http.StatusOK, conversationObject{name, "conversation", made})
}

// createConversation stores a conversation with its items.
func (h *conversations) createConversation(ctx context.Context, caller caller.Caller, k *keyed, name string, made storedConversation, items *part) (err error) {
	c := journal.Conversation{}
	if c.RequestJSON, err = surface.Marshal(made); err != nil {
		return err
	}
	if len(items.items) > 0 {
		id, err := h.savePart(ctx, caller, k, items)
		if err != nil {
			return err
		}
		c.Parts = []string{id}
	}
	if err := k.made(conversation.Save(ctx, h.store, caller.Org.ID, name, c, h.keepFor())); err != nil {
		for _, part := range c.Parts {
			h.dropUnused(ctx, caller, k, part)
		}
		return surface.Failed(h.log, err)
	}
	return h.keys.finish(ctx, caller, k)
}

// addedItems reads the items that a client adds to a conversation.
func addedItems(value json.RawMessage) ([]json.RawMessage, error) {
	if value == nil {
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "the request has no items").In("items")
	}
	var list []json.RawMessage
	if err := into("items", value, &list); err != nil {
		return nil, err
	}
	if len(list) == 0 || len(list) > maxAdded {
		return nil, fault.New(fault.Invalid, "invalid_value", "items must have 1 to %d items", maxAdded).In("items")
	}
	for i, raw := range list {
		if err := checkAdded(path("items", i), raw); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// addableTypes are the types of items that a conversation can have, from the OpenAI document.
var addableTypes = []string{
	"message", "reasoning", "compaction", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
	"mcp_list_tools", "mcp_call", "mcp_approval_request", "mcp_approval_response",
	"web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call", "computer_call_output",
	"local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
	"tool_search_call", "tool_search_output", "program", "program_output",
}

// typesWithPrefix are the types whose ids the gateway always makes: an id of a client must have
// their prefix, as at OpenAI. Ids of other types come from providers too.
var typesWithPrefix = []string{"message", "reasoning", "function_call", "mcp_list_tools"}

// checkAdded refuses an item with a type that no conversation has, or with an id that does not
// fit its type. What else is wrong with it is found when it is read.
func checkAdded(at string, raw json.RawMessage) error {
	r := referenceOf(raw)
	if r.is() {
		return nil
	}
	kind := cmp.Or(kindOf(raw), "message")
	switch {
	case kind == "additional_tools":
		return fault.New(fault.Invalid, "unsupported_value", "%s: additional_tools belong to one request; send them in its input", at).In(at + ".type")
	case !slices.Contains(addableTypes, kind):
		return fault.New(fault.Invalid, "invalid_value", "%s: a conversation cannot have items of the type %.100q", at, kind).In(at + ".type")
	}
	prefix := strings.TrimSuffix(idPrefixes[kind], "_")
	if r.ID != "" && slices.Contains(typesWithPrefix, kind) && !strings.HasPrefix(r.ID, prefix) {
		return fault.New(fault.Invalid, "invalid_value", "%s: the id %.100q does not fit the type %s; expected an id that begins with %q", at, r.ID, kind, prefix).In(at + ".id")
	}
	return nil
}

// part are items that become a part of a conversation.
type part struct {
	journal.Conversation                  // without RequestJSON
	items                []map[string]any // as the client sent them
	places               []string         // of each of Items in the request
}

// newPart reads items that become a part of a conversation.
func (h *conversations) newPart(ctx context.Context, caller caller.Caller, list []json.RawMessage) (*part, error) {
	d := h.requests.newDecoder(ctx, caller, &run.Request{})
	in := newInputReader(d)
	defer d.dropFound()
	if err := in.addAll("items", list); err != nil {
		return nil, err
	}
	if d.native != "" {
		return nil, fault.New(fault.Invalid, "unsupported_value", "%s has a form that cannot be stored in a conversation", d.native).In(d.native)
	}
	if err := surface.IncludeFiles(ctx, h.files, caller, d.req.Items); err != nil {
		return nil, err
	}
	p := &part{Conversation: journal.Conversation{Items: d.req.Items, Listed: d.req.Listed}, places: d.req.Places}
	for _, raw := range list {
		var it map[string]any
		if err := decodeExactly(raw, &it); err != nil {
			return nil, err // unreachable: it was decoded before
		}
		p.items = append(p.items, it)
	}
	return p, nil
}

// checkResults refuses results of calls that neither the part nor the conversation has; "" = it is a new one.
func (h *conversations) checkResults(ctx context.Context, caller caller.Caller, name string, p *part) error {
	memory := caller.Account.Share()
	defer memory.Close()
	return surface.Failed(h.log, conversation.CheckResults(ctx, h.store, h.runs, conversation.Request{
		Org: caller.Org.ID, Items: p.Items, Places: p.places, Continues: conversation.Ref{ID: name, Named: true, Member: "conversation_id", Code: "conversation_not_found"},
	}, memory))
}

// savePart stores a part under the id that it returns, with an id for each item.
func (h *conversations) savePart(ctx context.Context, caller caller.Caller, k *keyed, p *part) (id string, err error) {
	p.Input = make([]journal.Entry, len(p.items))
	for i, it := range p.items {
		complete(it, fmt.Sprintf("%s_%d", k.Suffix, i))
		p.Input[i].ID = idOf(it)
		if p.Input[i].JSON, err = surface.Marshal(it); err != nil {
			return "", err
		}
	}
	id = conversation.PartOf(k.Suffix, true)
	err = k.made(conversation.Save(ctx, h.store, caller.Org.ID, id, p.Conversation, h.keepFor()))
	return id, surface.Failed(h.log, err)
}

// GetConversation answers GET /v1/conversations/{id}.
func (h *conversations) GetConversation(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	name := r.PathValue("id")
	c, err := h.findConversation(r.Context(), caller, name)
	if err != nil {
		return err
	}
	return writeConversation(w, name, c)
}

func writeConversation(w http.ResponseWriter, id string, c *journal.Conversation) error {
	object, err := asObject(id, c)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, object)
}

// changeConversation changes a stored conversation of the caller's org.
func (h *conversations) changeConversation(ctx context.Context, caller caller.Caller, id string, change func(*journal.Conversation) bool) (*journal.Conversation, error) {
	if !strings.HasPrefix(id, conversationPrefix) {
		return nil, noConversation(id, "conversation_id")
	}
	c, err := conversation.Change(ctx, h.store, caller.Org.ID, id, h.keepFor(), change)
	if err != nil {
		return nil, surface.Failed(h.log, err)
	}
	if c == nil {
		return nil, noConversation(id, "conversation_id")
	}
	return c, nil
}

// UpdateConversation answers POST /v1/conversations/{id}.
func (h *conversations) UpdateConversation(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	body, err := surface.ReadObject(r, caller.Account)
	if err == nil {
		err = surface.OnlyMembers(body, "metadata")
	}
	if err == nil && body["metadata"] == nil {
		err = fault.New(fault.Invalid, "missing_required_parameter", "the request has no metadata").In("metadata")
	}
	if err != nil {
		return err
	}
	metadata, err := metadataOf(body)
	if err != nil {
		return err
	}
	name := r.PathValue("id")
	var broken error
	c, err := h.changeConversation(r.Context(), caller, name, func(c *journal.Conversation) bool {
		var object *conversationObject
		if object, broken = asObject(name, c); broken != nil {
			return false
		}
		object.Metadata = metadata
		c.RequestJSON, broken = surface.Marshal(object.storedConversation)
		return broken == nil
	})
	if err := errors.Join(err, broken); err != nil {
		return err
	}
	return writeConversation(w, name, c)
}

// DeleteConversation answers DELETE /v1/conversations/{id}.
func (h *conversations) DeleteConversation(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	name := r.PathValue("id")
	ctx, cancel := surface.Detached(r)
	defer cancel()
	if !strings.HasPrefix(name, conversationPrefix) {
		return noConversation(name, "conversation_id")
	}
	was, err := conversation.Delete(ctx, h.store, caller.Org.ID, name) // also one that cannot be decoded
	if err != nil {
		return surface.Failed(h.log, err)
	}
	if !was {
		return noConversation(name, "conversation_id")
	}
	return surface.WriteJSON(w, http.StatusOK, surface.Deleted(name, "conversation.deleted"))
}

// RewindConversation answers POST /v1/conversations/{id}/rewind.
func (h *conversations) RewindConversation(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	run, err := surface.ReadRewind(r, caller.Account)
	if err != nil {
		return err
	}
	name := r.PathValue("id")
	if _, err := h.findConversation(r.Context(), caller, name); err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	c, _, err := conversation.Rewind(ctx, h.store, caller.Org.ID, name, run, h.keepFor())
	if err != nil {
		return surface.Failed(h.log, err)
	}
	if c == nil {
		return noConversation(name, "conversation_id")
	}
	return writeConversation(w, name, c)
}

// ForkConversation answers POST /v1/conversations/{id}/fork.
func (h *conversations) ForkConversation(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	body, err := surface.ReadObject(r, caller.Account)
	if err == nil {
		err = surface.OnlyMembers(body)
	}
	if err != nil {
		return err
	}
	name := r.PathValue("id")
	key, err := keyOf(r, caller, "conversations.fork "+name, body)
	if err != nil {
		return err
	}
	k, err := h.keys.begin(r.Context(), caller, key, func() error {
		_, err := h.findConversation(r.Context(), caller, name)
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	fork := conversationPrefix + k.Suffix
	made, err := h.findKeyed(ctx, caller, k, fork)
	if err == nil && made == nil {
		made, err = h.fork(ctx, caller, k, name, fork)
	}
	if err != nil {
		return err
	}
	return writeConversation(w, fork, made)
}

// findKeyed returns the conversation that an earlier request with the key has made; nil = none has.
func (h *conversations) findKeyed(ctx context.Context, caller caller.Caller, k *keyed, id string) (*journal.Conversation, error) {
	if k.key == nil {
		return nil, nil
	}
	c, err := conversation.Find(ctx, h.store, caller.Org.ID, conversationPrefix, id)
	if err == nil && c == nil && k.Done {
		return nil, noConversation(id, "conversation_id")
	}
	return c, surface.Failed(h.log, err)
}

// fork stores a fork of a conversation, which is returned.
func (h *conversations) fork(ctx context.Context, caller caller.Caller, k *keyed, name, fork string) (*journal.Conversation, error) {
	for {
		f, _, err := conversation.ForkOf(ctx, h.store, caller.Org.ID, name, conversation.AllTurns, conversation.IsAdded)
		if err != nil {
			return nil, surface.Failed(h.log, err)
		}
		if f == nil {
			return nil, noConversation(name, "conversation_id")
		}
		object, err := asObject(name, &f.Conversation)
		if err != nil {
			return nil, err
		}
		f.ID, object.CreatedAt = fork, k.CreatedAt
		if f.RequestJSON, err = surface.Marshal(object.storedConversation); err != nil {
			return nil, err
		}
		again, err := conversation.StoreFork(ctx, h.store, caller.Org.ID, f, h.keepFor())
		if again {
			continue
		}
		if err := k.made(err); err != nil {
			return nil, surface.Failed(h.log, err)
		}
		return &f.Conversation, h.keys.finish(ctx, caller, k)
	}
}

// AddItems answers POST /v1/conversations/{id}/items.
func (h *conversations) AddItems(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	body, err := surface.ReadObject(r, caller.Account)
	if err == nil {
		err = surface.OnlyMembers(body, "items")
	}
	if err != nil {
		return err
	}
	list, err := addedItems(body["items"])
	if err != nil {
		return err
	}
	included, err := newIncluded(r.URL.Query())
	if err != nil {
		return err
	}
	name := r.PathValue("id")
	key, err := keyOf(r, caller, "conversations.items "+name, body)
	if err != nil {
		return err
	}
	c, err := h.findConversation(r.Context(), caller, name)
	if err != nil {
		return err
	}
	var added *part
	k, err := h.keys.begin(r.Context(), caller, key, func() (err error) {
		if len(conversation.StoredParts(r.Context(), h.store, caller.Org.ID, c.Parts)) >= conversation.MaxParts {
			return fault.New(fault.Invalid, "conversation_too_long", "conversation: items were added to it, or responses, %d times; start another one", conversation.MaxParts).In("items")
		}
		if err = h.refuseRepeated(r.Context(), caller, c.Parts, list); err == nil {
			added, err = h.newPart(r.Context(), caller, list)
		}
		if err == nil {
			err = h.checkResults(r.Context(), caller, name, added)
		}
		return err
	})
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	items, err := h.addPart(ctx, caller, k, name, list, added)
	if err == nil {
		err = included.note(w, caller, items)
	}
	if err != nil {
		return err
	}
	return surface.WriteMade(w, caller, http.StatusOK, listOf(items, len(items)))
}

// addPart stores items and adds them to a conversation, and returns them as they are listed. added
// is nil if the request was sent before: then it returns the items that were stored, or an error
// if they were deleted.
func (h *conversations) addPart(ctx context.Context, caller caller.Caller, k *keyed, name string, list []json.RawMessage, added *part) ([]map[string]any, error) {
	if k.Done {
		id := conversation.PartOf(k.Suffix, true)
		has, err := conversation.Parts(ctx, h.store, caller.Org.ID, name)
		var items []map[string]any
		if err == nil && slices.Contains(has, id) { // a fork may have them still
			items, err = h.items.itemsOf(ctx, caller, id, nil)
		}
		if err == nil && len(items) == 0 {
			err = fault.New(fault.NotFound, "item_not_found", "the items that the first request with this Idempotency-Key has added were deleted").In("Idempotency-Key")
		}
		return items, err
	}
	var err error
	if added == nil {
		if added, err = h.newPart(ctx, caller, list); err != nil {
			return nil, err
		}
	}
	id, err := h.savePart(ctx, caller, k, added)
	if err != nil {
		return nil, err
	}
	if _, err := h.changeConversation(ctx, caller, name, func(c *journal.Conversation) bool {
		if slices.Contains(c.Parts, id) {
			return false
		}
		c.Parts = append(slices.Clip(conversation.StoredParts(ctx, h.store, caller.Org.ID, c.Parts)), id)
		return true
	}); err != nil {
		h.dropUnused(ctx, caller, k, id)
		return nil, err
	}
	return added.items, h.keys.finish(ctx, caller, k)
}

// dropUnused deletes a part that could not be added to its conversation. One of a request with an
// Idempotency-Key stays: another request with the key may have added it, or will.
func (h *conversations) dropUnused(ctx context.Context, caller caller.Caller, k *keyed, part string) {
	if k.key == nil {
		h.dropPart(ctx, caller, part)
	}
}

// dropPart deletes a part that is in no conversation. If that fails, it expires.
func (h *conversations) dropPart(ctx context.Context, caller caller.Caller, part string) {
	if err := conversation.DeleteAdded(ctx, h.store, caller.Org.ID, part); err != nil {
		h.log.Error("items of no conversation were not deleted; they expire", "org", caller.Org.ID, "error", err)
	}
}

// refuseRepeated refuses items with an id that another one of them has, or an item of the parts.
func (h *conversations) refuseRepeated(ctx context.Context, caller caller.Caller, parts []string, list []json.RawMessage) error {
	places := map[string]string{} // by id
	for i, raw := range list {
		var it struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(raw, &it) != nil || it.ID == "" {
			continue // savePart says what is wrong
		}
		if first, is := places[it.ID]; is {
			return fault.New(fault.Invalid, "item_already_in_conversation", "%s has the id %.100q of %s", path("items", i), it.ID, first).In("items")
		}
		places[it.ID] = path("items", i)
	}
	if len(places) == 0 {
		return nil
	}
	return h.items.visitItems(ctx, caller, parts, nil, func(_ string, items []map[string]any) (bool, error) {
		for _, it := range items {
			if id, _ := it["id"].(string); places[id] != "" {
				return true, fault.New(fault.Invalid, "item_already_in_conversation", "%s: the conversation has an item with the id %.100q", places[id], id).In("items")
			}
		}
		return false, nil
	})
}

// visitItems calls visit with the items of each part, until it returns true. The memory of
// items is then still charged; that of the items before is not.
func (h *storedItems) visitItems(ctx context.Context, caller caller.Caller, parts []string, in included, visit func(part string, items []map[string]any) (done bool, err error)) error {
	for _, part := range parts {
		before := caller.Account.Used()
		items, err := h.itemsOf(ctx, caller, part, in)
		if err != nil {
			return err
		}
		if done, err := visit(part, items); done || err != nil {
			return err
		}
		caller.Account.Release(int(caller.Account.Used() - before))
	}
	return nil
}

// ListItems answers GET /v1/conversations/{id}/items.
func (h *conversations) ListItems(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	page, err := newPage(r.URL.Query())
	if err != nil {
		return err
	}
	c, err := h.findConversation(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return err
	}
	order := make([]int, len(c.Parts)) // the indexes of the parts
	for i := range order {
		order[i] = i
	}
	if page.latestFirst {
		slices.Reverse(order)
	}
	all := &conversationItems{items: h.items, caller: caller, parts: c.Parts, read: make([]bool, len(c.Parts)), firsts: map[string]int{}}
	if start := slices.Index(order, partWith(c.Parts, page.after)); start > 0 { // the items in front of it are not wanted
		err = all.fill(r.Context(), page, order[start:])
	}
	if err == nil && (!page.begun || page.after == "") {
		err = all.fill(r.Context(), page, order)
	}
	if err != nil {
		return err
	}
	list, err := page.list()
	if err == nil {
		err = page.note(w, caller, list.Data)
	}
	if err != nil {
		return err
	}
	return surface.WriteStored(w, caller, http.StatusOK, list)
}

// conversationItems are the items of a conversation as they are listed: an item with the id of
// an earlier one is left out, so that each id names one place in the list.
type conversationItems struct {
	items  *storedItems
	caller caller.Caller
	parts  []string
	read   []bool         // of each part, whether firsts has its ids
	firsts map[string]int // the index of the first part with an item, by the item's id
}

// fill adds the items of parts to a page, until it is full. The parts are named by their indexes,
// and come in the order of the page.
func (c *conversationItems) fill(ctx context.Context, page *page, order []int) error {
	for _, i := range order {
		before := c.caller.Account.Used()
		items, err := c.items.itemsOf(ctx, c.caller, c.parts[i], page.included)
		if err != nil {
			return err
		}
		held := int(c.caller.Account.Used() - before)
		if items, err = c.withoutRepeats(ctx, i, items); err != nil {
			return err
		}
		if page.add(items) {
			return nil
		}
		if len(page.items) == 0 { // none of them is on the page
			c.caller.Account.Release(held)
		}
	}
	return nil
}

// withoutRepeats returns the items of a part without those that an earlier part has. An id that
// the gateway has made for the part can only be in parts that are made later. One of those is in
// front of the part if a client has added it while the response was made, or if an item was
// deleted. The other ids can be in any part.
func (c *conversationItems) withoutRepeats(ctx context.Context, i int, items []map[string]any) ([]map[string]any, error) {
	items = withoutRepeats(items)
	suffix := conversation.SuffixOfPart(c.parts[i])
	others := slices.ContainsFunc(items, func(it map[string]any) bool { return !strings.Contains(idOf(it), suffix) })
	for earlier, part := range c.parts[:i] {
		if others || conversation.SuffixOfPart(part) >= suffix {
			if err := c.readIDs(ctx, earlier); err != nil {
				return nil, err
			}
		}
	}
	return slices.DeleteFunc(items, func(it map[string]any) bool {
		first, is := c.firsts[idOf(it)]
		return is && first < i
	}), nil
}

// readIDs reads the ids of the items of a part into firsts, if it was not read.
func (c *conversationItems) readIDs(ctx context.Context, i int) error {
	if c.read[i] {
		return nil
	}
	c.read[i] = true
	size := 0
	err := c.items.visitItems(ctx, c.caller, c.parts[i:i+1], nil, func(_ string, items []map[string]any) (bool, error) {
		for _, it := range items {
			id := idOf(it)
			first, is := c.firsts[id]
			if !is {
				size += len(id) + mapEntryBytes
			}
			if !is || i < first {
				c.firsts[strings.Clone(id)] = i
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return c.caller.Account.Acquire(size)
}

// mapEntryBytes is about the memory of an entry of a map from a string to a number, without the
// text of the string.
const mapEntryBytes = 48

// partWith returns the index of the part whose suffix is in the id of an item; -1 for none.
// An item with an id of the client's can be in any part.
func partWith(parts []string, itemID string) int {
	return slices.IndexFunc(parts, func(part string) bool {
		return itemID != "" && strings.Contains(itemID, conversation.SuffixOfPart(part))
	})
}

// storedItems reads the items of conversations, part by part.
type storedItems struct{ *storedResponses }

// itemsOf returns the items that a part adds to its conversation, in order; none if it is not stored any
// more. They have what the names of include ask for, as far as it is stored.
func (h *storedItems) itemsOf(ctx context.Context, caller caller.Caller, part string, in included) ([]map[string]any, error) {
	return h.readItems(ctx, caller, part, in, func(c *journal.Conversation) (conversation.Addition, error) {
		return conversation.AdditionOf(ctx, h.store, h.runs, caller.Org.ID, c)
	})
}

// everyItemOf returns the items of a part, or of a response, whether or not they belong to a conversation.
func (h *storedItems) everyItemOf(ctx context.Context, caller caller.Caller, part string) ([]map[string]any, error) {
	return h.readItems(ctx, caller, part, nil, func(*journal.Conversation) (a conversation.Addition, err error) { return a, nil })
}

// readItems returns the items of a part: what adds says of one that is set aside, and otherwise what is stored.
func (h *storedItems) readItems(
	ctx context.Context, caller caller.Caller, part string, in included, adds func(*journal.Conversation) (conversation.Addition, error),
) ([]map[string]any, error) {
	var c *journal.Conversation
	var s *stored
	var items []map[string]any
	var added conversation.Addition
	err := h.reads.do(ctx, caller.Org.ID, func() (err error) {
		if c, err = conversation.FindPart(ctx, h.store, caller.Org.ID, part); err != nil || c == nil {
			return surface.Failed(h.log, err)
		}
		if added, err = adds(c); err != nil {
			return surface.Failed(h.log, err)
		}
		if s, err = h.echoOf(caller, part, c); err == nil && added.Aside {
			s.input, err = noteEntries(part, added.Items)
		}
		if err == nil {
			items, err = s.inputItems(part)
		}
		return err
	})
	if err != nil || c == nil || c.RunID == "" || added.Aside {
		return items, err
	}
	s.include(in)
	object, err := h.render(ctx, caller, surface.Extensions{}, found{Conversation: c}, s)
	if errors.Is(err, org.ErrNotFound) {
		return items, nil
	} else if err != nil {
		return nil, surface.Failed(h.log, err)
	}
	output, err := surface.Marshal(object.Output)
	if err != nil {
		return nil, err
	}
	var list []map[string]any
	if err := decodeExactly(output, &list); err != nil {
		return nil, err
	}
	return append(items, list...), nil
}

// noteEntries returns what the gateway says in place of a part, as it is listed.
func noteEntries(part string, notes []item.Item) (out []journal.Entry, err error) {
	for _, it := range notes {
		var note journal.Entry
		note.ID = fmt.Sprintf("msg_%s_aside", conversation.SuffixOfPart(part))
		note.JSON, err = surface.Marshal(map[string]any{
			"type": "message", "role": it.Role, "status": "completed", "content": []any{map[string]any{"type": "input_text", "text": it.Text()}},
		})
		out = append(out, note)
	}
	return out, err
}

// findItem returns an item of a conversation; nil if there is none.
func (h *storedItems) findItem(ctx context.Context, caller caller.Caller, c *journal.Conversation, itemID string, in included) (found map[string]any, err error) {
	parts := c.Parts
	if i := partWith(parts, itemID); i >= 0 {
		parts = append([]string{parts[i]}, parts...)
	}
	err = h.visitItems(ctx, caller, parts, in, func(_ string, items []map[string]any) (bool, error) {
		i := slices.IndexFunc(items, func(it map[string]any) bool { return idOf(it) == itemID })
		if i >= 0 {
			found = items[i]
		}
		return i >= 0, nil
	})
	return found, err
}

// itemFinder finds single items that were stored by their ids, as an item_reference names them. The gateway knows the
// ids that it has made. What it has read is charged to the caller until drop.
type itemFinder struct {
	items  *storedItems
	ctx    context.Context
	caller caller.Caller

	read    map[string]map[string]any  // the items of the parts that were read, by their ids
	encoded map[string]json.RawMessage // the items that were found, by their ids: references share them
	charged int
}

// itemsIn returns the items of a part by their ids.
func (f *itemFinder) itemsIn(part string) (map[string]any, error) {
	if byID, is := f.read[part]; is {
		return byID, nil
	}
	items, err := f.items.everyItemOf(f.ctx, f.caller, part)
	if err != nil {
		return nil, err
	}
	byID, size := make(map[string]any, len(items)), 0
	for _, it := range items {
		if id, _ := it["id"].(string); byID[id] == nil {
			byID[id] = it
			size += heldBytes(it)
		}
	}
	if err := f.caller.Account.Acquire(size); err != nil {
		return nil, err
	}
	f.charged += size
	if f.read == nil {
		f.read, f.encoded = map[string]map[string]any{}, map[string]json.RawMessage{}
	}
	f.read[part] = byID
	return byID, nil
}

// heldBytes returns about how much memory a decoded JSON value takes.
func heldBytes(v any) int {
	const header = 16
	switch v := v.(type) {
	case map[string]any:
		n := mapEntryBytes
		for name, member := range v {
			n += mapEntryBytes + len(name) + heldBytes(member)
		}
		return n
	case []any:
		n := header
		for _, element := range v {
			n += header + heldBytes(element)
		}
		return n
	case string:
		return header + len(v)
	}
	return header
}

// find returns an item; nil for none.
func (f *itemFinder) find(itemID string) (json.RawMessage, error) {
	_, rest, _ := strings.Cut(itemID, "_")
	suffix, _, _ := strings.Cut(rest, "_")
	if suffix == "" {
		return nil, nil
	}
	for _, added := range []bool{false, true} {
		items, err := f.itemsIn(conversation.PartOf(suffix, added))
		if err != nil {
			return nil, err
		}
		if items[itemID] == nil {
			continue
		}
		raw, is := f.encoded[itemID]
		if !is {
			if raw, err = surface.Marshal(items[itemID]); err == nil {
				f.encoded[itemID] = raw
			}
		}
		return raw, err
	}
	return nil, nil
}

// drop drops what was read. The items that were found stay with their references.
func (f *itemFinder) drop() {
	f.caller.Account.Release(f.charged)
	f.read, f.encoded, f.charged = nil, nil, 0
}

func noItem(id string) error {
	return fault.New(fault.NotFound, "item_not_found", "the conversation has no item with the id %.100q", id).In("item_id")
}

// GetItem answers GET /v1/conversations/{id}/items/{item}.
func (h *conversations) GetItem(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	included, err := newIncluded(r.URL.Query())
	if err != nil {
		return err
	}
	c, err := h.findConversation(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return err
	}
	found, err := h.items.findItem(r.Context(), caller, c, r.PathValue("item"), included)
	if err != nil {
		return err
	}
	if found == nil {
		return noItem(r.PathValue("item"))
	}
	if err := included.note(w, caller, []map[string]any{found}); err != nil {
		return err
	}
	return surface.WriteStored(w, caller, http.StatusOK, found)
}

// DeleteItem answers DELETE /v1/conversations/{id}/items/{item}. The other items of its part
// are stored as if the client had added them.
func (h *conversations) DeleteItem(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	ctx, cancel := surface.Detached(r)
	defer cancel()
	for {
		c, err := h.deleteItem(ctx, caller, r.PathValue("id"), r.PathValue("item"))
		if err != nil {
			return err
		}
		if c != nil {
			return writeConversation(w, r.PathValue("id"), c)
		}
	}
}

// deleteItem deletes an item, wherever the conversation has it, and returns the conversation
// without it; nil if somebody has changed the item's parts meanwhile.
func (h *conversations) deleteItem(ctx context.Context, caller caller.Caller, name, itemID string) (*journal.Conversation, error) {
	c, err := h.findConversation(ctx, caller, name)
	if err != nil {
		return nil, err
	}
	instead, err := h.partsWithout(ctx, caller, c.Parts, itemID)
	if err == nil && len(instead) == 0 {
		return nil, noItem(itemID)
	}
	replaced := false
	if err == nil {
		drop := func(c *journal.Conversation) (dropped []string, store bool) {
			var parts []string
			for _, part := range c.Parts {
				other, is := instead[part]
				if !is {
					other = []string{part}
				} else {
					dropped = append(dropped, part)
				}
				parts = append(parts, other...)
			}
			if replaced = len(dropped) >= len(instead); replaced {
				c.Parts = parts
			}
			return dropped, replaced
		}
		c, err = conversation.Without(ctx, h.store, caller.Org.ID, name, h.keepFor(), drop)
		if err != nil {
			err = surface.Failed(h.log, err)
		} else if c == nil {
			err = noConversation(name, "conversation_id")
		}
	}
	if err != nil || !replaced {
		for _, other := range instead {
			for _, part := range other {
				h.dropPart(ctx, caller, part)
			}
		}
		return nil, err
	}
	return c, nil
}

// partsWithout stores, for each part with the item, a part with its other items. It returns
// the new parts by the old ones: none if there is no other item. After an error it returns those
// that were stored.
func (h *conversations) partsWithout(ctx context.Context, caller caller.Caller, parts []string, itemID string) (instead map[string][]string, err error) {
	instead = map[string][]string{}
	err = h.items.visitItems(ctx, caller, parts, nil, func(part string, items []map[string]any) (bool, error) {
		var left []json.RawMessage
		for _, it := range items {
			if idOf(it) == itemID {
				continue
			}
			raw, err := surface.Marshal(it)
			if err != nil {
				return false, err
			}
			left = append(left, raw)
		}
		switch len(left) {
		case len(items):
			return false, nil
		case 0:
			instead[part] = nil
			return false, nil
		}
		rest, err := h.newPart(ctx, caller, left)
		if err != nil {
			return false, err
		}
		other, err := h.savePart(ctx, caller, &keyed{Suffix: id.NewOrdered("")}, rest)
		if err == nil {
			instead[part] = []string{other}
		}
		return false, err
	})
	return instead, err
}
