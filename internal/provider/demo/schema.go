package demo

import "strings"

// resolve follows a reference inside the schema, and takes the first branch of
// a choice.
func (m *maker) resolve(s map[string]any) map[string]any {
	for range maxNesting {
		if ref, ok := s["$ref"].(string); ok {
			target := m.find(ref)
			if target == nil {
				return map[string]any{}
			}
			s = target
			continue
		}
		branch := firstBranch(s)
		if branch == nil {
			return s
		}
		s = branch
	}
	return map[string]any{}
}

// find looks a local reference up, such as #/$defs/point.
func (m *maker) find(ref string) map[string]any {
	at := m.root
	path, local := strings.CutPrefix(ref, "#/")
	if !local {
		return nil
	}
	for part := range strings.SplitSeq(path, "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		next, ok := at[part].(map[string]any)
		if !ok {
			return nil
		}
		at = next
	}
	return at
}

func firstBranch(s map[string]any) map[string]any {
	if s["type"] != nil || s["properties"] != nil {
		return nil
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		branches, _ := s[key].([]any)
		for _, b := range branches {
			if b, ok := b.(map[string]any); ok && b["type"] != "null" {
				return b
			}
		}
	}
	return nil
}

// typeOf returns the schema's type, the first that is not null of several.
func typeOf(s map[string]any) string {
	switch t := s["type"].(type) {
	case string:
		return t
	case []any:
		for _, one := range t {
			if one, ok := one.(string); ok && one != "null" {
				return one
			}
		}
	}
	switch {
	case s["properties"] != nil:
		return "object"
	case s["items"] != nil:
		return "array"
	}
	return ""
}
