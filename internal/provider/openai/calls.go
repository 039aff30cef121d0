package openai

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// calls puts tool calls together. A call comes in pieces that the dialect
// joins by index; compatible providers leave the index out, use one index for
// all, repeat ids and names, or send whole calls.
//
// The dialect does not mark a call's end. A call is complete when the next one
// has begun, or when the turn has ended for another reason than its length.
type calls struct {
	list  []call
	bytes int  // of the pieces' arguments, as they came
	open  int  // the call that the last piece belonged to
	mixed bool // pieces of several calls alternate: only the turn's end ends them
}

type call struct {
	index    int64 // noIndex where none was given
	id, name string
	args     []byte
	extra    object // members of the call that the provider may want back
	complete bool
}

// piece is one element of tool_calls.
type piece struct {
	index    int64
	id, name string
	args     []byte // JSON: a string, or an object from providers that do not encode it
	v        []byte
}

const noIndex = -1

func parsePiece(v []byte) piece {
	p := piece{index: noIndex, v: v}
	for name, value := range wire.Members(v) {
		switch string(name) {
		case "index":
			p.index = wire.Number(value, noIndex)
		case "id":
			p.id = wire.Text(value)
		case "function":
			for name, value := range wire.Members(value) {
				switch string(name) {
				case "name":
					p.name = wire.Text(value)
				case "arguments":
					p.args = value
				}
			}
		}
	}
	return p
}

// add takes the element at the given position of a delta's tool_calls. It
// reports false when there are too many calls.
func (c *calls) add(at int, v []byte) bool {
	if !wire.IsKind(v, '{') {
		return true
	}
	p := parsePiece(v)
	i := c.find(at, p)
	if i < 0 {
		if len(c.list) == wire.MaxCalls {
			return false
		}
		c.begin(p.index)
		i = len(c.list) - 1
	}
	c.touch(i)
	c.bytes += len(p.args)
	c.list[i].take(p)
	return true
}

// find returns the call that a piece continues, or -1 where it begins one.
func (c *calls) find(at int, p piece) int {
	if len(c.list) == 0 {
		return -1
	}
	last := len(c.list) - 1
	switch {
	case p.index != noIndex:
		for i := last; i >= 0; i-- {
			if c.list[i].index == p.index {
				return c.unlessOther(i, p)
			}
		}
		return -1
	case p.id != "":
		for i := last; i >= 0; i-- {
			if c.list[i].id == p.id {
				return c.unlessOther(i, p)
			}
		}
	}
	if at > 0 && p.name != "" {
		return -1 // whole calls in one delta
	}
	return c.unlessOther(last, p)
}

func (c *calls) unlessOther(i int, p piece) int {
	if c.list[i].otherThan(p) {
		return -1
	}
	return i
}

// otherThan reports whether a piece that came to the call's place begins
// another call. Only a piece with a name can.
func (c *call) otherThan(p piece) bool {
	switch {
	case p.name == "" || c.name == "":
		return false
	case p.id != "" && c.id != "" && p.id != c.id:
		return true
	case !c.whole():
		return false // a name that is repeated, or comes in pieces
	case p.id != "" && p.name == c.name && bytes.Equal(appendArguments(nil, p.args), c.args):
		return false // the same call once more
	}
	return p.id == "" || bytes.HasPrefix(appendArguments(nil, p.args), []byte("{"))
}

// whole reports whether the arguments could be all.
func (c *call) whole() bool {
	return bytes.HasSuffix(c.args, []byte("}")) && wire.Valid(c.args)
}

func (c *calls) begin(index int64) {
	if n := len(c.list); n > 0 && !c.mixed {
		c.list[c.open].complete = true
	}
	c.list = append(c.list, call{index: index})
	c.open = len(c.list) - 1
}

// touch notes that a piece came for call i. One that comes for a call that
// seemed complete shows that this provider sends its calls side by side.
func (c *calls) touch(i int) {
	if i != c.open && !c.mixed {
		c.mixed = true
		for j := range c.list {
			c.list[j].complete = false
		}
	}
	c.open = i
}

func (c *call) take(p piece) {
	again := p.name == c.name && p.id == c.id && p.id != "" && c.whole() &&
		bytes.Equal(appendArguments(nil, p.args), c.args)
	if c.id == "" {
		c.id = p.id
	}
	switch {
	case p.name == c.name || len(c.args) > 0 && c.name != "": // repeated
	default:
		c.name += p.name
	}
	if !again {
		c.args = appendArguments(c.args, p.args)
	}
	for name, v := range wire.Members(p.v) {
		switch string(name) {
		case "index", "id", "function":
		default:
			c.extra.add(name, v)
		}
	}
}

func appendArguments(dst, v []byte) []byte {
	if wire.IsKind(v, '{') || wire.IsKind(v, '[') {
		return append(dst, v...)
	}
	return wire.AppendText(dst, v)
}

// end marks what is complete now that the turn has ended. The call that was
// being written when its length ran out is not.
func (c *calls) end(all bool) {
	for i := range c.list {
		c.list[i].complete = all || i != c.open && !c.mixed
	}
}

// all returns the calls in the order of their indexes, which is the model's.
func (c *calls) all() []model.Call {
	var list []model.Call
	for _, i := range c.order() {
		k := &c.list[i]
		list = append(list, model.Call{
			ID: k.id, Name: k.name, Arguments: string(k.args), Complete: k.complete,
		})
	}
	return list
}

// order returns the positions in c.list by index, in order of arrival where
// one was not given.
func (c *calls) order() []int {
	order := make([]int, len(c.list))
	indexed := true
	for i := range c.list {
		order[i] = i
		indexed = indexed && c.list[i].index != noIndex
	}
	if indexed {
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(c.list[i].index, c.list[j].index) })
	}
	return order
}

// appendTo appends the complete calls as an array.
func (c *calls) appendTo(dst []byte) []byte {
	dst = append(dst, '[')
	first := true
	for _, i := range c.order() {
		k := &c.list[i]
		if !k.complete {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = wire.AppendString(append(dst, `{"id":`...), k.id)
		if len(k.extra.get("type")) == 0 {
			dst = append(dst, `,"type":"function"`...)
		}
		dst = k.extra.appendTo(dst)
		dst = wire.AppendString(append(dst, `,"function":{"name":`...), k.name)
		dst = wire.AppendString(append(dst, `,"arguments":`...), k.args)
		dst = append(dst, `}}`...)
	}
	return append(dst, ']')
}
