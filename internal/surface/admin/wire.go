package admin

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/surface"
)

type list[T any] struct {
	Data []T `json:"data"`
}

// merge applies the members of a body to the top-level members of current and returns the JSON that the Reader
// must read. A member that is null gets its default. A member that the body gives twice is returned twice: the
// Reader refuses it.
func merge(patch []surface.Member, current any) ([]byte, error) {
	text, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	add := func(name string, value []byte) error {
		quoted, err := json.Marshal(name)
		all = append(all, slices.Concat(quoted, []byte(":"), value))
		return err
	}
	for name, value := range surface.Members(text) {
		if !slices.ContainsFunc(patch, func(p surface.Member) bool { return p.Name == name }) {
			if err := add(name, value); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range patch {
		if err := add(p.Name, p.Value); err != nil {
			return nil, err
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(all, []byte(",")), []byte("}")), nil
}
