package item

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

// Version is the version of the stored form of items that this build writes. It
// reads every version up to it.
const Version = 1

// ErrUnknownVersion says that items were stored by a newer build.
var ErrUnknownVersion = errors.New("items of an unknown version")

// List is a transcript, or a piece of one, that is stored as JSON:
//
//	{"v":1,"items":[{"kind":"message","role":"user","parts":[…]},…]}
type List []Item

// storedList is the JSON of a List.
type storedList struct {
	Version int    `json:"v"`
	Items   []Item `json:"items"`
}

// MarshalJSON implements [json.Marshaler]. It does not escape <, > and &, so that
// native forms keep their bytes.
func (l List) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(storedList{Version, l}); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. It fails for a version that this
// build does not know.
func (l *List) UnmarshalJSON(data []byte) error {
	var stored storedList
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	if stored.Version != Version && string(data) != "null" {
		return fmt.Errorf("%w: version %d, this build reads up to %d", ErrUnknownVersion, stored.Version, Version)
	}
	*l = stored.Items
	return nil
}

// Encode returns the stored form of each item of the list.
func (l List) Encode() ([]json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	out, ends := make([]json.RawMessage, len(l)), make([]int, len(l))
	for i := range l {
		if err := e.Encode(&l[i]); err != nil {
			return nil, err
		}
		ends[i] = b.Len()
	}
	all, begin := b.Bytes(), 0
	for i, end := range ends {
		out[i], begin = all[begin:end-1:end-1], end // without the newline
	}
	return out, nil
}

// Join returns the stored form of the List with the items that [List.Encode] has encoded.
func Join(items []json.RawMessage) []byte {
	n := len(`{"v":1,"items":[]}`)
	for _, it := range items {
		n += len(it) + 1
	}
	b := make([]byte, 0, n)
	b = strconv.AppendInt(append(b, `{"v":`...), Version, 10)
	b = append(b, `,"items":[`...)
	for i, it := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, it...)
	}
	return append(b, `]}`...)
}
