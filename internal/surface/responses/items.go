package responses

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
)

// InputItems answers GET /v1/responses/{id}/input_items.
func (h *storedResponses) InputItems(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	page, err := newPage(r.URL.Query())
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	var body []byte
	err = h.reads.do(r.Context(), caller.Org.ID, func() error {
		_, s, err := h.findWhole(r.Context(), caller, id)
		if err != nil {
			return err
		}
		items, err := s.inputItems(id)
		if err != nil {
			return err
		}
		page.add(withoutRepeats(items))
		list, err := page.list()
		if err == nil {
			err = page.note(w, caller, list.Data)
		}
		if err == nil {
			body, err = surface.Marshal(list)
		}
		return err
	})
	if err != nil {
		return surface.Failed(h.log, err)
	}
	return surface.WriteHeld(w, caller, http.StatusOK, body)
}

// inputItems returns the input of a response, or the items of a part that a client has
// added, as the API lists them.
func (s *stored) inputItems(part string) ([]map[string]any, error) {
	items := make([]map[string]any, len(s.input))
	for i, e := range s.input {
		if err := decodeExactly(e.JSON, &items[i]); err != nil {
			return nil, fmt.Errorf("stored items of %s: %w", part, err)
		}
		if e.ID != "" && items[i] != nil {
			items[i]["id"] = e.ID
		}
		complete(items[i], fmt.Sprintf("%s_in%d", conversation.SuffixOfPart(part), i))
	}
	return items, nil
}

// entriesOf returns items that a client has sent, with their ids, as they are stored.
func entriesOf(list []json.RawMessage) []journal.Entry {
	out := make([]journal.Entry, len(list))
	for i, raw := range list {
		t := surface.Texts(raw, "type", "id")
		out[i] = journal.Entry{ID: t[1], JSON: raw}
		if t[1] == "" {
			out[i].Prefix = cmp.Or(idPrefixes[cmp.Or(t[0], "message")], otherPrefix)
		}
	}
	return out
}

// idOf returns the id of a listed item.
func idOf(it map[string]any) string {
	id, _ := it["id"].(string)
	return id
}

// withoutRepeats returns the items without those that have the id of an earlier one: the pages of
// a list go on after an id.
func withoutRepeats(items []map[string]any) []map[string]any {
	seen := make(map[string]bool, len(items))
	return slices.DeleteFunc(items, func(it map[string]any) bool {
		id := idOf(it)
		again := seen[id]
		seen[id] = true
		return again
	})
}

// decodeExactly decodes JSON whose numbers are kept as they were written, with all digits.
func decodeExactly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(v)
}

// idPrefixes begin the ids of items, by their type.
var idPrefixes = map[string]string{
	"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_", "custom_tool_call": "ctc_",
	"custom_tool_call_output": "ctco_", "mcp_call": "mcp_", "mcp_list_tools": "mcpl_", "mcp_approval_request": "mcpr_", "mcp_approval_response": "mcpa_",
	"web_search_call": "ws_", "file_search_call": "fs_", "code_interpreter_call": "ci_", "shell_call": "sh_", "shell_call_output": "sho_", "image_generation_call": "ig_",
}

// otherPrefix begins the ids of items of other types.
const otherPrefix = "item_"

// complete gives an item of a client what the API lists of it: a type, an id, a status, and
// content that is a list of parts. suffix is of the id of an item without one.
func complete(it map[string]any, suffix string) {
	if it["type"] == nil {
		it["type"] = "message"
	}
	kind, _ := it["type"].(string)
	if id, _ := it["id"].(string); id == "" {
		it["id"] = cmp.Or(idPrefixes[kind], otherPrefix) + suffix
	}
	for _, name := range []string{"phase", "encrypted_content", "namespace"} { // absent, where they are nothing
		if it[name] == nil {
			delete(it, name)
		}
	}
	switch kind {
	case "reasoning":
		if it["content"] == nil {
			delete(it, "content")
		}
	case "message":
		if text, ok := it["content"].(string); ok {
			part := map[string]any{"type": "input_text", "text": text}
			if it["role"] == string(item.Assistant) {
				part = map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
			}
			it["content"] = []any{part}
		}
		completeParts(it["content"])
		fallthrough
	case "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output":
		completeParts(it["output"])
		if it["status"] == nil {
			it["status"] = "completed"
		}
	}
}

// completeParts gives the parts of an item, if there are any, the members that the API always
// lists of them.
func completeParts(list any) {
	parts, _ := list.([]any)
	for _, p := range parts {
		part, _ := p.(map[string]any)
		missing := map[string]any{}
		switch part["type"] {
		case "output_text":
			missing["annotations"], missing["logprobs"] = []any{}, []any{}
		case "input_image":
			missing["detail"], missing["image_url"] = "auto", nil
		}
		for name, value := range missing {
			if part[name] == nil {
				part[name] = value
			}
		}
	}
}

// The limits on a page of items, from the OpenAI document.
const (
	defaultPage = 20
	maxPage     = 100
)

// itemList is a page of items.
type itemList = surface.OpenAIPage[map[string]any]

// listOf returns the page of up to limit items.
func listOf(items []map[string]any, limit int) itemList {
	unchanged := func(it map[string]any) map[string]any { return it }
	return surface.NewIDPage(items, limit, unchanged, func(it map[string]any) string {
		id, _ := it["id"].(string) // every stored item has one
		return id
	}).OpenAI()
}

// page collects the items that a query asks for.
type page struct {
	limit       int
	latestFirst bool
	after       string // the id of the item in front of the page; "" = the page is the first
	included

	begun bool // after was found
	items []map[string]any
}

// newPage reads a query. The latest items are first unless it asks otherwise.
func newPage(query url.Values) (*page, error) {
	included, err := newIncluded(query)
	if err != nil {
		return nil, err
	}
	p := &page{limit: defaultPage, after: query.Get("after"), included: included}
	p.begun = p.after == ""
	if text := query.Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxPage {
			return nil, fault.New(fault.Invalid, "invalid_value", "limit must be between 1 and %d", maxPage).In("limit")
		}
		p.limit = n
	}
	switch order := query.Get("order"); order {
	case "", "desc":
		p.latestFirst = true
	case "asc":
	default:
		return nil, fault.New(fault.Invalid, "invalid_value", "order must be asc or desc").In("order")
	}
	return p, nil
}

// add adds items, which come in the order in which they were made. The caller passes the
// lists in the order of the page. It returns true when the page is full.
func (p *page) add(items []map[string]any) (full bool) {
	if p.latestFirst {
		items = slices.Clone(items)
		slices.Reverse(items)
	}
	for _, it := range items {
		switch {
		case p.begun:
			p.items = append(p.items, it)
		case it["id"] == p.after:
			p.begun = true
		}
		if len(p.items) > p.limit {
			return true
		}
	}
	return false
}

// list returns the page, or an error if there is no item p.after.
func (p *page) list() (list itemList, err error) {
	if !p.begun {
		return list, fault.New(fault.NotFound, "item_not_found", "after: there is no item with the id %.100q", p.after).In("after")
	}
	return listOf(p.items, p.limit), nil
}
