package config

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// list is a key with a list of scalars.
type list[T any] struct {
	into *[]T
	def  []T
	item func(*T) scalar[T]
	hide func([]T) string // the items for a log, without credentials; nil = all of them

	empty string // why an empty list is refused; "" = it is not
}

// notEmpty refuses an empty list, with the reason.
func (l list[T]) notEmpty(reason string) list[T] {
	l.empty = reason
	return l
}

// or gives the list a default.
func (l list[T]) or(def []T) list[T] {
	l.def = def
	return l
}

func (l list[T]) reset()              { *l.into = append([]T(nil), l.def...) }
func (l list[T]) typeName() string    { return "list of: " + l.item(new(T)).typ }
func (l list[T]) defaultText() string { return l.show(l.def) }

func (l list[T]) json() any { return append([]T{}, *l.into...) }

func (l list[T]) shown() string {
	if l.hide != nil {
		return l.hide(*l.into)
	}
	return l.show(*l.into)
}

func (l list[T]) show(items []T) string {
	shown := make([]string, len(items))
	for i := range items {
		shown[i] = l.item(&items[i]).show(items[i])
	}
	return "[" + strings.Join(shown, ", ") + "]"
}

func (l list[T]) decode(d *decoder, path string, n ast.Node) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.failNode(n, path, "found %s, want a %s", rawOf(n), l.typeName())
		return
	}
	if len(seq.Values) == 0 && l.empty != "" {
		d.failNode(n, path, "%s", l.empty)
	}
	*l.into = nil
	for i, item := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.where[at] = originOf(item)
		v, err := l.item(new(T)).parse(rawOf(item))
		if err != nil {
			d.failNode(item, at, "%v", err)
			continue
		}
		*l.into = append(*l.into, v)
	}
}

// fromEnv reads the items with commas between them; an empty text is an empty list.
func (l list[T]) fromEnv(text string) error {
	var all []T
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" && text == "" {
			continue
		}
		v, err := l.item(new(T)).parse(raw{isLoose, part})
		if err != nil {
			return err
		}
		all = append(all, v)
	}
	*l.into = all
	return nil
}

func texts(into *[]string, def []string, want string, check func(string) error) list[string] {
	return list[string]{into: into, def: def, item: func(s *string) scalar[string] { return text(s, "", want, check) }}
}

// commandLine is a key with a program and its arguments, which may hold credentials.
func commandLine(into *[]string) list[string] {
	l := texts(into, nil, "text", anyText)
	l.hide = func(command []string) string {
		if len(command) < 2 {
			return l.show(command)
		}
		return fmt.Sprintf("[%s, %d arguments]", command[0], len(command)-1)
	}
	return l
}

func words(into *[]string, all ...string) list[string] {
	return list[string]{into: into, item: func(s *string) scalar[string] { return word(s, "", all...) }}
}

func prefixes(into *[]netip.Prefix) list[netip.Prefix] {
	return list[netip.Prefix]{into: into, item: func(p *netip.Prefix) scalar[netip.Prefix] {
		return scalar[netip.Prefix]{into: p, typ: "CIDR such as 10.0.0.0/8", show: netip.Prefix.String, parse: parsePrefix}
	}}
}

// parsePrefix takes one spelling of each network, so that nobody reads a list
// of networks differently from the gateway.
func parsePrefix(r raw) (netip.Prefix, error) {
	if r.kind != isText && r.kind != isLoose {
		return netip.Prefix{}, wrongType(r, "a CIDR such as 10.0.0.0/8")
	}
	p, err := netip.ParsePrefix(r.text)
	if err != nil {
		if a, bare := netip.ParseAddr(r.text); bare == nil && a.Zone() == "" {
			return netip.Prefix{}, fmt.Errorf("%s is not a CIDR; want %s/%d", quote(r.text), a, a.BitLen())
		}
		return netip.Prefix{}, fmt.Errorf("%s is not a CIDR such as 10.0.0.0/8", quote(r.text))
	}
	switch {
	case p.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4 network in IPv6 form; write it as IPv4", quote(r.text))
	case p.Masked() != p:
		return netip.Prefix{}, fmt.Errorf("%s has address bits after its prefix; want %s", quote(r.text), p.Masked())
	}
	return p, nil
}

// object is a key with a map of known keys.
type object struct{ keys []key }

func (o object) reset()                                     { reset(o.keys) }
func (o object) typeName() string                           { return "map" }
func (o object) defaultText() string                        { return "{}" }
func (o object) decode(d *decoder, path string, n ast.Node) { d.mapping(path, n, o.keys) }
func (o object) children() (string, []key)                  { return "", o.keys }

// objects is a key with a list of maps of known keys.
type objects[T any] struct {
	into *[]T
	keys func(*T) []key
}

func (o objects[T]) reset()              { *o.into = nil }
func (o objects[T]) typeName() string    { return "list of maps" }
func (o objects[T]) defaultText() string { return "[]" }

func (o objects[T]) children() (string, []key) {
	keys := o.keys(new(T))
	reset(keys)
	return "[]", keys
}

func (o objects[T]) items() [][]key {
	all := make([][]key, len(*o.into))
	for i := range *o.into {
		all[i] = o.keys(&(*o.into)[i])
	}
	return all
}

func (o objects[T]) decode(d *decoder, path string, n ast.Node) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.failNode(n, path, "found %s, want a list of maps", rawOf(n))
		return
	}
	*o.into = make([]T, len(seq.Values))
	for i, item := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.where[at] = originOf(item)
		keys := o.keys(&(*o.into)[i])
		reset(keys)
		d.mapping(at, item, keys)
	}
}
