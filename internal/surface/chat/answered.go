package chat

import (
	"reflect"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/item"
)

// answered knows the calls of the messages that were read, and their results. Several calls
// can have one id: the nth result with it answers the nth of them.
type answered struct {
	open    map[string]int         // how many calls with an id have no result
	results map[string][]item.Part // the latest result for an id
}

func (a *answered) call(id string) {
	if a.open == nil {
		a.open, a.results = map[string]int{}, map[string][]item.Part{}
	}
	a.open[id]++
}

// again reports whether the result of the message at a place was already read. It refuses
// another result for an answered call, and one without a call.
func (a *answered) again(at, id string, parts []item.Part) (bool, error) {
	at += ".tool_call_id"
	before, is := a.results[id]
	switch {
	case a.open[id] > 0:
		a.open[id]--
		a.results[id] = parts
		return false, nil
	case !is:
		return false, fault.New(fault.Invalid, "invalid_value", "%s: no message before it has a tool call with the id %.100q; "+
			"send the assistant message with the call before its result", at, id).In(at)
	case !reflect.DeepEqual(before, parts):
		return false, fault.New(fault.Invalid, "invalid_value", "%s: the tool call with the id %.100q has another result before this one; send one result for each call", at, id).In(at)
	}
	return true, nil
}
