package builtin

import (
	"path"
	"slices"
)

// Names returns the names of the form.
func (f Form) Names() []string {
	if f.Prefixed {
		return []string{f.Name, MistralRSPrefix + f.Name}
	}
	return []string{f.Name}
}

// AlsoSelected returns the names of built-in tools that the pattern of a hook, see [path.Match], does not match, and whose calls it
// selects all the same. The own name of a tool selects calls by all its names. Any name selects calls by another that is the same for
// a model, and by the tool's own: such a call can do what a call by that name does.
func AlsoSelected(pattern string) (names []string) {
	matches := func(name string) bool {
		ok, err := path.Match(pattern, name)
		return ok || err != nil
	}
	for _, t := range All() {
		anyForm := false
		for _, form := range t.Forms {
			same := form.Names()
			selects := slices.ContainsFunc(same, matches)
			anyForm = anyForm || selects
			for _, name := range same {
				if !matches(name) && (selects || matches(t.Name)) {
					names = append(names, name)
				}
			}
		}
		if anyForm && !matches(t.Name) {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	return names
}

// RunsCode reports whether a tool that the model calls by this name runs code, and in which language; "" = the arguments say it.
func RunsCode(name string) (language string, runs bool) {
	for _, t := range All() {
		for _, form := range t.Forms {
			if form.Language != "" && slices.Contains(form.Names(), name) {
				return form.Language, true
			}
		}
	}
	return "", name == CodeExecute
}
