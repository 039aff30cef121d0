package item

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Version is the version of the stored form of items that this build writes. It
// reads every version up to it.
const Version = 2

// ErrUnknownVersion says that items were stored by a newer build.
var ErrUnknownVersion = errors.New("items of an unknown version")

// List is a transcript, or a piece of one, that is stored as JSON:
//
//	{"v":2,"items":[{"kind":"message","role":"user","parts":[…]},…]}
//
// In version 1 it was an array of entries. One entry held a whole answer of a
// model: its reasoning, text and calls. UnmarshalJSON turns each into items.
type List []Item

// listV2 is the JSON of a List.
type listV2 struct {
	Version int    `json:"v"`
	Items   []Item `json:"items"`
}

// MarshalJSON implements [json.Marshaler]. It does not escape <, > and &, so that
// native forms keep their bytes.
func (l List) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(listV2{Version, l}); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. It fails for a version that this
// build does not know.
func (l *List) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		var entries []entryV1
		if err := json.Unmarshal(data, &entries); err != nil {
			return err
		}
		for i, e := range entries {
			if e.Role == "" {
				return fmt.Errorf("entry %d of items of version 1 has no role", i)
			}
		}
		*l = itemsOf(entries)
		return nil
	}
	var stored listV2
	if err := json.Unmarshal(data, &stored); err != nil {
		return err
	}
	if stored.Version != Version && string(data) != "null" {
		return fmt.Errorf("%w: version %d, this build reads 1 to %d", ErrUnknownVersion, stored.Version, Version)
	}
	*l = stored.Items
	return nil
}

// entryV1 is an entry of version 1.
type entryV1 struct {
	Role  Role   `json:"role"`
	Name  string `json:"name"`
	Parts []Part `json:"parts"`
	Calls []struct {
		ID        string `json:"id"`
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"calls"`
	CallID  string `json:"call_id"`
	IsError bool   `json:"is_error"`
	Native  Native `json:"native"`
}

const (
	roleToolV1      Role     = "tool"
	partReasoningV1 PartKind = "reasoning"
)

// itemsOf turns entries of version 1 into items. Every answer of a model gets a
// Turn number of its own, from 1 on.
func itemsOf(entries []entryV1) []Item {
	var items []Item
	turn := 0
	for _, e := range entries {
		switch e.Role {
		case roleToolV1:
			items = append(items, Item{Kind: ToolResult, CallID: e.CallID, Name: e.Name, Parts: e.Parts, IsError: e.IsError, Native: e.Native})
		case Assistant:
			turn++
			items = append(items, e.answer(turn)...)
		default:
			items = append(items, Item{Kind: Message, Role: e.Role, Name: e.Name, Parts: e.Parts, Native: e.Native})
		}
	}
	return items
}

// answer returns the items of an answer. The first of them carries the native
// form.
func (e entryV1) answer(turn int) []Item {
	var items []Item
	said := Item{Kind: Message, Turn: turn, Role: Assistant, Name: e.Name}
	for _, p := range e.Parts {
		if p.Kind == partReasoningV1 {
			p.Kind = Text
			items = append(items, Item{Kind: Reasoning, Turn: turn, Parts: []Part{p}})
			continue
		}
		said.Parts = append(said.Parts, p)
	}
	if len(said.Parts) > 0 || len(items)+len(e.Calls) == 0 {
		items = append(items, said)
	}
	for _, c := range e.Calls {
		call := NewCall(c.ID, c.Name, c.Arguments)
		call.Turn = turn
		items = append(items, call)
	}
	items[0].Native = e.Native
	return items
}
