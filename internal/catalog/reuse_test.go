package catalog

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// F05
func TestWhoseResultsMayBeUsedAgain(t *testing.T) {
	hinted := func(name string, class tool.Class, a tool.Annotations) tool.Tool {
		return fakeTool{tool.Definition{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: a}, class}
	}
	tools := has(
		hinted("silent", "", tool.Annotations{}),
		hinted("says it reads", "", tool.Annotations{ReadOnly: new(true)}),
		hinted("says it writes", "", tool.Annotations{ReadOnly: new(false)}),
		hinted("says it destroys", "", tool.Annotations{Destructive: new(true)}),
		hinted("says both", "", tool.Annotations{ReadOnly: new(true), Destructive: new(true)}),
		hinted("in reads", tool.Read, tool.Annotations{Destructive: new(true)}),
		hinted("in keyed", tool.Keyed, tool.Annotations{ReadOnly: new(true)}),
		hinted("in polling", tool.Read, tool.Annotations{ReadOnly: new(true)}),
	)
	for _, c := range []struct {
		name  string
		cache org.Cache
		want  []string
	}{
		{"where nothing is said, those that only read", org.Cache{}, []string{"says it reads", "says both", "in reads"}},
		{"all: also those of which it is not known that they write", org.Cache{Mode: org.CacheAll}, []string{"silent", "says it reads", "says it writes", "says both", "in reads"}},
		{"named: those, whatever is said of them", org.Cache{Mode: org.CacheNames, Names: []string{"in polling", "says it destroys", "in keyed"}}, []string{"says it destroys", "in keyed", "in polling"}},
		{"no names: none", org.Cache{Mode: org.CacheNames}, nil},
		{"a word that nobody knows: none", org.Cache{Mode: "some"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cat, _ := logged(t)
			set := mustFind(t, cat, Server{Name: "s", Source: tools, Cache: c.cache, Polling: []string{"in polling"}, Origin: "here", Naming: Prefixed})
			var got []string
			for _, e := range set.entries {
				if e.Cacheable {
					got = append(got, e.Tool.Definition().Name)
				}
				if e.Origin != "here" {
					t.Errorf("%s is of the origin %q", e.Definition.Name, e.Origin)
				}
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestWhatTheGatewaysOwnToolsAnswerIsNotUsedAgain(t *testing.T) {
	e, err := newOwnEntry(fakeTool{tool.Definition{Name: "a", InputSchema: json.RawMessage(`{"type":"object"}`), Annotations: tool.Annotations{ReadOnly: new(true)}}, tool.Read})
	if err != nil || e.Cacheable {
		t.Errorf("got %+v, %v; what it answers is about one run", e, err)
	}
}

func TestARunThatGoesOnKnowsWhatMayBeUsedAgain(t *testing.T) {
	c, _ := logged(t)
	read := fakeTool{tool.Definition{Name: "a", InputSchema: json.RawMessage(`{"type":"object"}`)}, tool.Read}
	then := mustFind(t, c, Server{Name: "s", Source: has(read, fakeTool{def: tool.Definition{Name: "b", InputSchema: json.RawMessage(`{"type":"object"}`)}, class: tool.Read}), Origin: "here"})
	now, _ := logged(t)
	set, err := mustFind(t, now, Server{Name: "s", Source: has(read), Origin: "there"}).Recall(then.Seal(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := set.Lookup("a"); !a.Cacheable || a.Origin != "there" {
		t.Errorf("the tool that is still there: %+v", a)
	}
	if set.Lookup("b").Cacheable {
		t.Error("what a tool that is gone would say may be used again")
	}
}
