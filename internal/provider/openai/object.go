package openai

import (
	"bytes"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// maxFields is how many members an object keeps.
const maxFields = 64

// maxOpen is how many of the last elements of a list can get further pieces.
const maxOpen = 256

// object is a JSON object that is put together from pieces. It holds members that
// the gateway does not interpret and a provider may want back.
//
//	{"reasoning":"Let me"}  {"reasoning":" see"}                    → {"reasoning":"Let me see"}
//	{"reasoning_details":[{"index":0,"type":"t","text":"Let me"}]}
//	{"reasoning_details":[{"index":0,"type":"t","text":" see"}]}    → one element
type object struct {
	fields []field
}

// field is one member: a string in text, a list, or raw JSON.
type field struct {
	name string
	kind byte // ", [ or 0
	text []byte
	list []element
	raw  []byte
}

// element is one element of a list: raw, or merged by its index.
type element struct {
	raw    []byte
	index  int64
	merged object
}

// add merges a member. It returns false for null and empty values, and for a
// member beyond maxFields.
func (o *object) add(name, v []byte) bool {
	if jsonscan.IsNull(v) || string(v) == `""` || string(v) == `[]` || string(v) == `{}` {
		return false
	}
	i := o.field(name)
	if i == maxFields {
		return false
	}
	f := &o.fields[i]
	kind := v[0]
	if kind != '"' && kind != '[' {
		kind = 0
	}
	f.become(kind)
	switch kind {
	case '"':
		f.addText(v)
	case '[':
		for _, e := range jsonscan.Elements(v) {
			f.addElement(e)
		}
	default:
		f.raw = bytes.Clone(v) // numbers, booleans and objects: the last one
	}
	return true
}

// field returns the position of a member, which it adds if it is new; maxFields if
// there are too many.
func (o *object) field(name []byte) int {
	for i := range o.fields {
		if o.fields[i].name == string(name) {
			return i
		}
	}
	if len(o.fields) == maxFields {
		return maxFields
	}
	o.fields = append(o.fields, field{name: string(name)})
	return len(o.fields) - 1
}

// textField returns the position of a string member, which it adds if it is new;
// maxFields if there are too many.
func (o *object) textField(name []byte) int {
	i := o.field(name)
	if i < maxFields {
		o.fields[i].become('"')
	}
	return i
}

// become empties a member whose values were of another kind.
func (f *field) become(kind byte) {
	if f.kind != kind {
		*f = field{name: f.name, kind: kind}
	}
}

// get returns the text of a string member.
func (o *object) get(name string) []byte {
	for i := range o.fields {
		if o.fields[i].name == name {
			return o.fields[i].text
		}
	}
	return nil
}

// addText joins pieces of text. Labels such as the type are repeated with every
// piece, and signatures come whole: they are replaced.
func (f *field) addText(v []byte) {
	switch f.name {
	case "reasoning", "reasoning_content", "thinking", "text", "summary":
		f.text = jsonscan.AppendText(f.text, v)
	case "type", "format", "id", "signature":
		f.text = jsonscan.AppendText(f.text[:0], v)
	default:
		if piece := jsonscan.AppendText(nil, v); !bytes.Equal(piece, f.text) {
			f.text = append(f.text, piece...)
		}
	}
}

// addElement merges an object that has an index into the last element with the
// same index and type: some providers use one index for a summary and its
// encrypted form. Any other value becomes a new element.
func (f *field) addElement(v []byte) {
	index := jsonscan.Member(v, "index")
	if len(index) == 0 || index[0] != '-' && (index[0] < '0' || index[0] > '9') {
		f.list = append(f.list, element{raw: bytes.Clone(v)})
		return
	}
	at, typ, id := jsonscan.Number(index, -1), jsonscan.Text(jsonscan.Member(v, "type")), jsonscan.Text(jsonscan.Member(v, "id"))
	for i := len(f.list) - 1; i >= max(0, len(f.list)-maxOpen); i-- {
		e := &f.list[i]
		if e.raw == nil && e.index == at && e.is("type", typ) && e.is("id", id) {
			e.add(v)
			return
		}
	}
	f.list = append(f.list, element{index: at})
	f.list[len(f.list)-1].add(v)
}

// is reports whether the element's member is value. It is true if either is empty.
func (e *element) is(name, value string) bool {
	have := e.merged.get(name)
	return value == "" || len(have) == 0 || string(have) == value
}

func (e *element) add(v []byte) {
	for name, value := range jsonscan.Members(v) {
		e.merged.add(name, value)
	}
}

// appendTo appends the members, each after a comma.
func (o *object) appendTo(dst []byte) []byte {
	for i := range o.fields {
		f := &o.fields[i]
		dst = append(dst, ',')
		dst = append(jsonscan.AppendString(dst, f.name), ':')
		switch f.kind {
		case '"':
			dst = jsonscan.AppendString(dst, f.text)
		case '[':
			dst = f.appendList(dst)
		default:
			dst = append(dst, f.raw...)
		}
	}
	return dst
}

func (f *field) appendList(dst []byte) []byte {
	dst = append(dst, '[')
	for i, e := range f.list {
		if i > 0 {
			dst = append(dst, ',')
		}
		if e.raw != nil {
			dst = append(dst, e.raw...)
			continue
		}
		start := len(dst)
		dst = append(e.merged.appendTo(dst), '}')
		dst[start] = '{' // in place of the first comma; an element has its index
	}
	return append(dst, ']')
}
