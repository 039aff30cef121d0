package chat

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// readRequired reads the files that a request requires. The error names the member that is wrong.
func readRequired(m surface.Member) ([]file.Required, error) {
	var all []json.RawMessage
	if err := decodeInto(m, &all); err != nil {
		return nil, err
	}
	if len(all) > file.MaxRequired {
		return nil, surface.InvalidValue(m.Name, "%s names %d files; at most %d are allowed", m.Name, len(all), file.MaxRequired)
	}
	var out []file.Required
	for i, one := range all {
		at := fmt.Sprintf("%s[%d]", m.Name, i)
		r, err := readOneRequired(at, one)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(other file.Required) bool { return other.Path() == r.Path() }) {
			return nil, surface.InvalidValue(at+".name", "%s.name: %q is named twice", at, r.Name)
		}
		out = append(out, r)
	}
	return out, nil
}

func readOneRequired(at string, raw json.RawMessage) (r file.Required, err error) {
	if err := surface.CheckMembers(at, raw, "name", "format", "description"); err != nil {
		return r, err
	}
	if len(raw) == 0 || raw[0] != '{' || json.Unmarshal(raw, &r) != nil {
		return r, fault.New(fault.Invalid, "invalid_type", `%s must be an object such as {"name": "chart.png"}, with texts`, at).In(at)
	}
	if member, err := r.Check(); err != nil {
		at += "." + member
		return r, surface.InvalidValue(at, "%s: %v", at, err)
	}
	return r, nil
}

// decodeRequired makes the files that the request requires known to the tool that runs code.
func (a *asked) decodeRequired(req *run.Request, m surface.Member) error {
	all, err := readRequired(m)
	if err != nil || len(all) == 0 {
		return err
	}
	if !surface.RunsCode(req) {
		return surface.NoCodeForFiles(m.Name, codeMember)
	}
	options, err := surface.Marshal(struct {
		Files []file.Required `json:"files"`
	}{all})
	a.required = all
	a.hosted = append(a.hosted, surface.CodeTool(options))
	return err
}
