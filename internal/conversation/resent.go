package conversation

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
)

// resent tells the items of a request that the stored conversation has already from those that
// are new. Clients send calls again with their results, although the conversation has the calls.
type resent struct {
	callIDs map[string]string    // ids of the provider's, by ours
	calls   map[string]*answered // of the conversation, by the provider's id
	same    map[string]bool      // the calls of the conversation, each as sameAs says
	said    map[string]bool      // the texts of the model's messages in the conversation
	own     map[string]bool      // the ids of the new calls of the request
}

// answered is what a conversation has under the id of a call.
type answered struct {
	open int        // how many calls have no result
	last *item.Item // the latest result; nil = none
}

func newResent(h history) *resent {
	r := &resent{h.callIDs, map[string]*answered{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for i := range h.items {
		switch it := &h.items[i]; {
		case it.Kind == item.ToolCall:
			if r.calls[it.CallID] == nil {
				r.calls[it.CallID] = &answered{}
			}
			r.calls[it.CallID].open++
			r.same[sameAs(it.CallID, *it)] = true
		case it.Kind == item.ToolResult && r.calls[it.CallID] != nil:
			r.calls[it.CallID].open--
			r.calls[it.CallID].last = it
		case it.Kind == item.Message && it.Turn != 0:
			r.said[item.PlainText(it.Parts)] = true
		}
	}
	return r
}

// sameAs returns a text that is the same for calls with the same id, name and arguments, whatever
// the order of their members.
func sameAs(id string, c item.Item) string {
	arguments := c.Arguments
	var v any
	d := json.NewDecoder(strings.NewReader(arguments))
	d.UseNumber()
	if d.Decode(&v) == nil {
		if canonical, err := json.Marshal(v); err == nil {
			arguments = string(canonical)
		}
	}
	return id + "\x00" + c.Name + "\x00" + arguments
}

// stored returns the id under which a call is stored.
func (r *resent) stored(id string) string {
	if theirs := r.callIDs[id]; theirs != "" {
		return theirs
	}
	return id
}

// isCall reports whether the conversation has the call. An id that the gateway has made is that of
// one call; ids of providers repeat.
func (r *resent) isCall(c item.Item) bool {
	return c.Kind == item.ToolCall && (r.callIDs[c.CallID] != "" || r.same[sameAs(c.CallID, c)])
}

// turn returns what is new of an answer of a model: all of it, or what is behind the calls
// that the conversation has, and what they came with.
func (r *resent) turn(answer []item.Item) (fresh []item.Item) {
	again := slices.ContainsFunc(answer, r.isCall)
	for _, it := range answer {
		if again && (r.isCall(it) || r.isSaid(it)) {
			continue
		}
		if it.Kind == item.ToolCall {
			r.own[it.CallID] = true
		}
		fresh = append(fresh, it)
	}
	return fresh
}

// isSaid reports whether the conversation has the item of an answer, which is no call.
func (r *resent) isSaid(it item.Item) bool {
	switch it.Kind {
	case item.Reasoning, item.Other:
		return true // of the answer with the call: a provider has one for each
	case item.Message:
		return r.said[item.PlainText(it.Parts)]
	case item.ToolCall, item.ToolResult:
	}
	return false
}

// newItems returns the items of a request that the conversation which it continues does not have:
// fresh, and answers, which are the results of calls of the conversation. They follow these calls,
// whatever the client has sent before them.
func newItems(h history, req Request) (fresh, answers []item.Item, err error) {
	r := newResent(h)
	for at := 0; at < len(req.Items); {
		end := item.TurnEnd(req.Items, at)
		turn, first := req.Items[at:end], at
		at = end
		if turn[0].Kind != item.ToolResult {
			fresh = append(fresh, r.turn(turn)...)
			continue
		}
		it := turn[0]
		place, err := r.result(&it, req.place(first))
		switch {
		case err != nil:
			return nil, nil, err
		case place == here:
			fresh = append(fresh, it)
		case place == behind:
			answers = append(answers, it)
		}
	}
	return fresh, answers, nil
}

// CheckResults returns a [fault.Error] if one of the items of a request, which are to be added to a named conversation,
// is the result of a call that neither an item before it nor the conversation has, or that has a result. The
// conversation may be a new one, without an ID.
func CheckResults(ctx context.Context, kept journal.Conversations, ends Ends, req Request, memory *memlimit.Share) error {
	if !slices.ContainsFunc(req.Items, func(it item.Item) bool { return it.Kind == item.ToolResult }) {
		return nil
	}
	var h history
	if req.Continues.ID != "" {
		var err error
		if h, err = readHistory(ctx, kept, ends, req, memory); err != nil {
			return err
		}
	}
	r := newResent(h)
	for i, it := range req.Items {
		if it.Kind != item.ToolResult {
			r.turn(req.Items[i : i+1])
			continue
		}
		at := req.place(i)
		switch place, err := r.result(&it, at); {
		case err != nil:
			return err
		case place == there:
			return fault.New(fault.Invalid, "invalid_value", "%s: the conversation has this output of the call with the call_id %.100q already; leave it out", at+".call_id", it.CallID).In(at + ".call_id")
		}
	}
	return nil
}

// where says where a result of the request belongs.
type where int

const (
	here   where = iota // its call is in the request
	behind              // its call is the conversation's, and has no result yet
	there               // the conversation has it
)

// result says where a result belongs. at is its place in the request. A result that answers a call
// of the conversation gets the provider's id.
func (r *resent) result(it *item.Item, at string) (where, error) {
	if r.own[it.CallID] {
		return here, nil
	}
	id := r.stored(it.CallID)
	call := r.calls[id]
	at += ".call_id"
	switch {
	case call == nil:
		return here, fault.New(fault.Invalid, "invalid_value", "%s: neither the input before it nor the conversation has a call with the call_id %.100q; "+
			"send the call_id of a function_call", at, it.CallID).In(at)
	case call.open > 0:
	case reflect.DeepEqual(call.last.Parts, it.Parts):
		return there, nil
	case it.Native.JSON == nil: // of a custom tool, which may report more than once
	default:
		return here, fault.New(fault.Invalid, "invalid_value", "%s: the call with the call_id %.100q has another output in the conversation; "+
			"send one output for each call", at, it.CallID).In(at)
	}
	if id != it.CallID {
		it.CallID, it.Native = id, item.Native{}
	}
	call.open, call.last = call.open-1, it
	return behind, nil
}
