package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is one difference between two configurations.
type Change struct {
	// Path is the key. An item of a list is called by its name, not by its
	// index: orgs[acme].runtime.max_rounds.
	Path string

	// Old and New are the values as the file writes them, without credentials:
	// both may be "[redacted]". An item that is new was "absent" and is
	// "present"; one that is removed is the opposite.
	Old, New string

	// Live is true if the change can be applied while the gateway serves, and
	// false if it needs a restart.
	Live bool
}

// Within reports whether the change is of the key or of something inside it.
func (c Change) Within(key string) bool {
	rest, ok := strings.CutPrefix(c.Path, key)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

const (
	absent  = "absent"
	present = "present"
)

// Changes returns the differences between two configurations in the order of the
// key table, nil if there are none. It compares the values after all defaults and
// environment variables. The content of the variable or file that a credential
// refers to is not compared.
func Changes(old, new *Config) []Change {
	return changes("", false, side{old, "", old.keys()}, side{new, "", new.keys()})
}

// side is one map of a configuration that is compared with another one.
type side struct {
	config *Config
	path   string // with indexes: orgs[0].runtime
	keys   []key
}

func (s side) given(key string) string {
	if s.config.Given(s.path + key) {
		return present
	}
	return absent
}

func (s side) inside(i int) side {
	path := s.path + s.keys[i].name + "."
	inside, _ := keysInside(s.keys[i].value)
	return side{s.config, path, inside}
}

// keysInside returns the keys of a map of known keys, or false.
func keysInside(v value) ([]key, bool) {
	switch v := v.(type) {
	case object:
		return v.keys, true
	case configObject:
		return v.keys, true
	}
	return nil, false
}

func changes(path string, live bool, old, new side) (all []Change) {
	for i, k := range old.keys {
		at, live := path+k.name, live || k.live
		if was, is := old.given(k.name), new.given(k.name); k.presence && was != is {
			all = append(all, Change{at, was, is, live})
		}
		if _, nested := keysInside(k.value); nested {
			all = append(all, changes(at+".", live, old.inside(i), new.inside(i))...)
			continue
		}
		switch v := k.value.(type) {
		case leaf:
			is := new.keys[i].value.(leaf)
			if !reflect.DeepEqual(v.json(), is.json()) {
				all = append(all, Change{at, v.shown(), is.shown(), live})
			}
		default:
			all = append(all, itemChanges(at, live, old.items(i), new.items(i))...)
		}
	}
	return all
}

// items returns the items of a list of maps.
func (s side) items(i int) []side {
	lists := s.keys[i].value.(interface{ items() [][]key }).items()
	all := make([]side, len(lists))
	for j, keys := range lists {
		all[j] = side{s.config, fmt.Sprintf("%s%s[%d].", s.path, s.keys[i].name, j), keys}
	}
	return all
}

// name returns what identifies the item in its list: its first key, with the others that do.
func (s side) name() string {
	name := s.keys[0].value.(leaf).shown()
	for _, k := range s.keys[1:] {
		if k.identifies {
			name += "/" + k.value.(leaf).shown()
		}
	}
	return name
}

// itemChanges compares two lists of maps. Items with one name are the same item.
func itemChanges(path string, live bool, old, new []side) (all []Change) {
	byName := map[string]side{}
	for _, item := range new {
		byName[item.name()] = item
	}
	var before, after []string // the order of the items that are in both lists
	kept := map[string]bool{}
	for _, item := range old {
		name := item.name()
		at := path + "[" + name + "]"
		now, ok := byName[name]
		if !ok {
			all = append(all, Change{at, present, absent, live})
			continue
		}
		kept[name] = true
		before = append(before, name)
		all = append(all, changes(at+".", live, item, now)...)
	}
	for _, item := range new {
		name := item.name()
		if kept[name] {
			after = append(after, name)
			continue
		}
		all = append(all, Change{path + "[" + name + "]", absent, present, live})
	}
	if !slices.Equal(before, after) {
		all = append(all, Change{path, "[" + strings.Join(before, ", ") + "]", "[" + strings.Join(after, ", ") + "]", live})
	}
	return all
}

// Shown returns every setting as the file writes it, after all defaults and environment
// variables, by the paths of [Change]. Credentials are references, or "[redacted]". An item
// of a list of maps has the value "present".
func (c *Config) Shown() map[string]string {
	out := map[string]string{}
	side{c, "", c.keys()}.show("", out)
	return out
}

// IsItem reports whether a path of Shown is that of an item of a list.
func IsItem(path string) bool { return strings.HasSuffix(path, "]") }

func (s side) show(path string, out map[string]string) {
	for i, k := range s.keys {
		at := path + k.name
		if _, nested := keysInside(k.value); nested {
			s.inside(i).show(at+".", out)
			continue
		}
		switch v := k.value.(type) {
		case leaf:
			out[at] = v.shown()
		default:
			for _, item := range s.items(i) {
				name := at + "[" + item.name() + "]"
				out[name] = present
				item.show(name+".", out)
			}
		}
	}
}
