package openai

import (
	"bytes"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// calls puts tool calls together. A call comes in pieces that the dialect
// joins by index; compatible providers leave the index out, use one index for
// all, repeat ids and names, or send whole calls.
//
// The dialect does not mark a call's end. A call is complete when the next one
// has begun, or when the turn ended for any reason except its length.
type calls struct {
	list        []call
	bytes       int  // of the pieces' arguments, as they came
	others      int  // bytes of their other members
	open        int  // the call that the last piece belonged to
	interleaved bool // pieces of several calls alternate: only the turn's end completes them
}

type call struct {
	index    int64 // noIndex where none was given
	id, name string
	args     []byte
	extra    object // members of the call that the provider may want back
	complete bool

	item     int  // the number of its item, from 1
	opened   bool // its first delta was reported
	reported int  // how many bytes of args were reported
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
	for name, value := range jsonscan.Members(v) {
		switch string(name) {
		case "index":
			p.index = jsonscan.Number(value, noIndex)
		case "id":
			p.id = jsonscan.Text(value)
		case "function":
			for name, value := range jsonscan.Members(value) {
				switch string(name) {
				case "name":
					p.name = jsonscan.Text(value)
				case "arguments":
					p.args = value
				}
			}
		}
	}
	return p
}

// add adds the element at the given position of a delta's tool_calls, an object.
// It returns the call that the element belongs to; nothing of it moves to another
// call later. The pointer is valid until the next add. It is nil if there are too
// many calls.
func (c *calls) add(at int, v []byte) *call {
	p := parsePiece(v)
	i := c.find(at, p)
	if i < 0 {
		if len(c.list) == wire.MaxCalls {
			return nil
		}
		c.begin(p.index)
		i = len(c.list) - 1
	}
	c.setOpen(i)
	c.bytes += len(p.args)
	c.others += len(v) - len(p.args)
	c.list[i].take(p)
	return &c.list[i]
}

// find returns the position of the call that a piece continues; -1 if it begins one.
func (c *calls) find(at int, p piece) int {
	if len(c.list) == 0 {
		return -1
	}
	last := len(c.list) - 1
	switch {
	case p.index != noIndex:
		for i := last; i >= 0; i-- {
			if c.list[i].index == p.index {
				return c.ifContinued(i, p)
			}
		}
		return -1
	case p.id != "":
		for i := last; i >= 0; i-- {
			if c.list[i].id == p.id {
				return c.ifContinued(i, p)
			}
		}
	}
	if at > 0 && p.name != "" {
		return -1 // whole calls in one delta
	}
	return c.ifContinued(last, p)
}

// ifContinued returns i if the piece continues call i, otherwise -1.
func (c *calls) ifContinued(i int, p piece) int {
	if c.list[i].beginsAnother(p) {
		return -1
	}
	return i
}

// beginsAnother reports whether a piece with the call's index or id, or with
// neither, begins another call. Only a piece with a name can.
func (c *call) beginsAnother(p piece) bool {
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

// whole reports whether the arguments can be complete: they are valid JSON.
func (c *call) whole() bool {
	return bytes.HasSuffix(c.args, []byte("}")) && jsonscan.Valid(c.args)
}

// begin adds a call, which completes the one before it.
func (c *calls) begin(index int64) {
	if n := len(c.list); n > 0 && !c.interleaved {
		c.list[c.open].complete = true
	}
	c.list = append(c.list, call{index: index})
	c.open = len(c.list) - 1
}

// setOpen notes that a piece came for call i. If call i seemed complete, the pieces
// of this turn's calls are interleaved, and no call is complete before the turn ends.
func (c *calls) setOpen(i int) {
	if i != c.open && !c.interleaved {
		c.interleaved = true
		for j := range c.list {
			c.list[j].complete = false
		}
	}
	c.open = i
}

// take adds a piece. A provider may repeat the id, the name, or the whole call.
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
	for name, v := range jsonscan.Members(p.v) {
		switch string(name) {
		case "index", "id", "function":
		default:
			c.extra.add(name, v)
		}
	}
}

func appendArguments(dst, v []byte) []byte {
	if jsonscan.IsKind(v, '{') || jsonscan.IsKind(v, '[') {
		return append(dst, v...)
	}
	return jsonscan.AppendText(dst, v)
}

// end marks the calls that are complete at the end of the turn: all of them, or all
// but the last one if the length limit cut it off.
func (c *calls) end(all bool) {
	for i := range c.list {
		c.list[i].complete = all || i != c.open && !c.interleaved
	}
}

// all returns the calls in the order in which they began.
func (c *calls) all() []model.Call {
	var list []model.Call
	for i := range c.list {
		k := &c.list[i]
		list = append(list, model.Call{
			ID: k.id, Name: k.name, Arguments: string(k.args), Complete: k.complete,
		})
	}
	return list
}

// appendTo appends the complete calls as an array.
func (c *calls) appendTo(dst []byte) []byte {
	dst = append(dst, '[')
	first := true
	for i := range c.list {
		k := &c.list[i]
		if !k.complete {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = jsonscan.AppendString(append(dst, `{"id":`...), k.id)
		if len(k.extra.get("type")) == 0 {
			dst = append(dst, `,"type":"function"`...)
		}
		dst = k.extra.appendTo(dst)
		dst = jsonscan.AppendString(append(dst, `,"function":{"name":`...), k.name)
		dst = jsonscan.AppendString(append(dst, `,"arguments":`...), k.args)
		dst = append(dst, `}}`...)
	}
	return append(dst, ']')
}
