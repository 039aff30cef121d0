package responses

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
)

// stored is what the surface stores with a response: what it repeats of the request, and
// the input as the client sent it. Output and usage come from the run.
type stored struct {
	Response echo              `json:"response"`
	Input    []json.RawMessage `json:"input"`
}

// find returns a stored response of the caller's org.
func (h *Handler) find(ctx context.Context, caller run.Caller, id string) (*run.Conversation, *stored, error) {
	kept, err := run.FindResponse(ctx, h.o.Conversations, caller.Org.ID, id)
	if err != nil {
		return nil, nil, err
	}
	if kept == nil {
		return nil, nil, notStored(id)
	}
	if err := caller.Account.Charge(len(kept.Echo)); err != nil {
		return nil, nil, err
	}
	s := &stored{Response: newEcho()}
	if err := json.Unmarshal(kept.Echo, s); err != nil {
		return nil, nil, fmt.Errorf("stored response %s: %w", id, err)
	}
	return kept, s, nil
}

func notStored(id string) error {
	return fault.New(fault.NotFound, "response_not_found", "no stored response has the id %.100q", id).In("response_id")
}

// Get answers GET /v1/responses/{id}.
func (h *Handler) Get(w http.ResponseWriter, r *http.Request, caller run.Caller) error {
	id := r.PathValue("id")
	if r.URL.Query().Get("stream") == "true" {
		return fault.New(fault.Invalid, "unsupported_value", "stream: a stored response is answered as one object; leave it out").In("stream")
	}
	kept, s, err := h.find(r.Context(), caller, id)
	if err != nil {
		return surface.Failed(h.o.Log, err)
	}
	tools := s.clientTools()
	made, failure, err := h.errors.Again(r.Context(), h.o.Runs, caller, kept.RunID, kept.FinalOnly, func(a *surface.Answer) surface.Object {
		return newEncoder(a, nil, s.Response, tools)
	})
	if errors.Is(err, org.ErrNotFound) { // the run was deleted: its time is over
		return notStored(id)
	} else if err != nil {
		return surface.Failed(h.o.Log, err)
	}
	object := made.Value()
	if failure != nil {
		object = made.(*encoder).failed(failure)
	}
	return surface.WriteJSON(w, http.StatusOK, object)
}

// clientTools returns the tools of the client that the model knows under another name or in
// another form.
func (s *stored) clientTools() clientTools {
	d := newDecoder(&run.Request{Targets: []run.Target{{}}})
	for i, raw := range s.Response.Tools {
		_, _ = d.decodeTool(path("tools", i), "", raw) // it was accepted once; other kinds are left out
	}
	for i, raw := range s.Input {
		if kindOf(raw) == "additional_tools" {
			_ = d.addTools(path("input", i), raw)
		}
	}
	return d.tools
}

// kindOf returns the type of an input item; "" if it has none.
func kindOf(raw json.RawMessage) string {
	var w struct {
		Type string `json:"type"`
	}
	_ = json.Unmarshal(raw, &w) // it was accepted once
	return w.Type
}

// deleted is the answer to a request that deletes a response.
type deleted struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Deleted bool   `json:"deleted"`
}

// Delete answers DELETE /v1/responses/{id}.
func (h *Handler) Delete(w http.ResponseWriter, r *http.Request, caller run.Caller) error {
	id := r.PathValue("id")
	was, err := run.DeleteResponse(r.Context(), h.o.Conversations, caller.Org.ID, id)
	if err != nil {
		return surface.Failed(h.o.Log, err)
	}
	if !was {
		return notStored(id)
	}
	return surface.WriteJSON(w, http.StatusOK, deleted{id, "response", true})
}

// The limits on a page of items, from the OpenAI document.
const (
	defaultPage = 20
	maxPage     = 100
)

// itemList is a page of items.
type itemList struct {
	Object  string `json:"object"`
	Data    []any  `json:"data"`
	FirstID any    `json:"first_id"` // null if there is none
	LastID  any    `json:"last_id"`
	HasMore bool   `json:"has_more"`
}

// InputItems answers GET /v1/responses/{id}/input_items.
func (h *Handler) InputItems(w http.ResponseWriter, r *http.Request, caller run.Caller) error {
	id := r.PathValue("id")
	kept, s, err := h.find(r.Context(), caller, id)
	if err != nil {
		return surface.Failed(h.o.Log, err)
	}
	items := make([]map[string]any, len(s.Input))
	for i, raw := range s.Input {
		if items[i], err = inputItem(raw, fmt.Sprintf("%s_in%d", suffixOf(kept.RunID), i)); err != nil {
			return fmt.Errorf("stored response %s: %w", id, err)
		}
	}
	page, err := pageOf(items, r.URL.Query())
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, page)
}

// inputItem returns an item of an input as the API lists it: with a type, an id, a status,
// and content that is a list of parts. suffix is of the id of an item without one.
func inputItem(raw json.RawMessage, suffix string) (map[string]any, error) {
	var it map[string]any
	if err := json.Unmarshal(raw, &it); err != nil {
		return nil, err
	}
	if it["type"] == nil {
		it["type"] = "message"
	}
	kind, _ := it["type"].(string)
	if id, _ := it["id"].(string); id == "" {
		prefixes := map[string]string{
			"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_", "custom_tool_call": "ctc_",
			"custom_tool_call_output": "ctco_", "mcp_call": "mcp_", "mcp_list_tools": "mcpl_",
		}
		prefix, known := prefixes[kind]
		if !known {
			prefix = "item_"
		}
		it["id"] = prefix + suffix
	}
	switch kind {
	case "message":
		if text, ok := it["content"].(string); ok {
			part := map[string]any{"type": "input_text", "text": text}
			if it["role"] == string(item.Assistant) {
				part = map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
			}
			it["content"] = []any{part}
		}
		fallthrough
	case "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output":
		if it["status"] == nil {
			it["status"] = "completed"
		}
	}
	return it, nil
}

// pageOf returns the items that a query asks for, the latest first unless it asks otherwise.
func pageOf(items []map[string]any, query url.Values) (*itemList, error) {
	limit, err := pageLimit(query)
	if err != nil {
		return nil, err
	}
	switch order := query.Get("order"); order {
	case "", "desc":
		slices.Reverse(items)
	case "asc":
	default:
		return nil, fault.New(fault.Invalid, "invalid_value", "order must be asc or desc").In("order")
	}
	if after := query.Get("after"); after != "" {
		i := slices.IndexFunc(items, func(it map[string]any) bool { return it["id"] == after })
		if i < 0 {
			return nil, fault.New(fault.NotFound, "item_not_found", "after: there is no item %q", after).In("after")
		}
		items = items[i+1:]
	}
	page := &itemList{Object: "list", Data: []any{}, HasMore: len(items) > limit}
	for _, it := range items[:min(limit, len(items))] {
		page.Data = append(page.Data, it)
	}
	if n := len(page.Data); n > 0 {
		page.FirstID, page.LastID = items[0]["id"], items[n-1]["id"]
	}
	return page, nil
}

func pageLimit(query url.Values) (int, error) {
	text := query.Get("limit")
	if text == "" {
		return defaultPage, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > maxPage {
		return 0, fault.New(fault.Invalid, "invalid_value", "limit must be between 1 and %d", maxPage).In("limit")
	}
	return n, nil
}
