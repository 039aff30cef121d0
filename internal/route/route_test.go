package route

import (
	"slices"
	"strconv"
	"testing"
)

func newRouter() *Router {
	return New([]Provider{
		{Name: "one", Models: []string{"a", "gpt-*", "shared"}},
		{Name: "two", Models: []string{"b", "gpt-5", "shared", "org/*", "x?z", "[a-c]1"}},
		{Name: "three", Models: []string{"*"}},
		{Name: "broken", Models: []string{"[", `\`}},
	})
}

func TestWhichProvidersServeAModel(t *testing.T) {
	r := newRouter()
	for _, tt := range []struct {
		name, model string
		want        []string // provider=name, in order
	}{
		{"the one that lists it", "a", []string{"one=a"}},
		{"all that list it, in configuration order", "shared", []string{"one=shared", "two=shared"}},
		{"an exact name before a pattern", "gpt-5", []string{"two=gpt-5"}},
		{"all whose patterns match", "gpt-4o", []string{"one=gpt-4o", "three=gpt-4o"}},
		{"a star stands for slashes too", "org/a/b", []string{"two=org/a/b", "three=org/a/b"}},
		{"a question mark is one character", "xyz", []string{"two=xyz", "three=xyz"}},
		{"a question mark is a slash too", "x/z", []string{"two=x/z", "three=x/z"}},
		{"a class", "b1", []string{"two=b1", "three=b1"}},
		{"the provider called so", "one/b", []string{"one=b"}},
		{"the provider called so, whatever it lists", "three/a/b", []string{"three=a/b"}},
		{"an unknown provider is part of the name", "zzz/a", []string{"three=zzz/a"}},
		{"a provider without a model is a name", "one/", []string{"three=one/"}},
		{"no provider's name", "/a", []string{"three=/a"}},
		{"a pattern is no name", "gpt-*", []string{"one=gpt-*", "three=gpt-*"}},
		{"names have cases", "A", []string{"three=A"}},
		{"nothing", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, target := range r.Resolve(tt.model) {
				got = append(got, target.Provider+"="+target.Model)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q goes to %q, want %q", tt.model, got, tt.want)
			}
		})
	}
}

func TestAModelThatNobodyServes(t *testing.T) {
	r := New([]Provider{{Name: "one", Models: []string{"a"}}, {Name: "broken", Models: []string{"["}}})
	for _, model := range []string{"b", "one", "[", "two/a"} {
		if got := r.Resolve(model); got != nil {
			t.Errorf("%q goes to %+v", model, got)
		}
	}
	if got := New(nil).Resolve("a"); got != nil {
		t.Errorf("%+v", got)
	}
}

func TestTheHints(t *testing.T) {
	r := newRouter()
	if want := []string{"a", "gpt-*", "shared", "b", "gpt-5", "org/*", "x?z", "[a-c]1", "*", "[", `\`}; !slices.Equal(r.Hints(), want) {
		t.Errorf("hints are %q, want %q", r.Hints(), want)
	}
}

func TestARouterDoesNotShareItsProviders(t *testing.T) {
	list := []Provider{{Name: "one", Models: []string{"a"}}}
	r := New(list)
	list[0].Name = "changed"
	if got := r.Resolve("a"); got[0].Provider != "one" {
		t.Errorf("%+v", got)
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("gpt-4o")
	f.Add("one/[")
	f.Add("\x00/*")
	f.Add(",")
	r := newRouter()
	f.Fuzz(func(t *testing.T, model string) {
		targets := r.Resolve(model)
		if (len(targets) == 0) != (model == "" || Names(model) != nil) { // the third provider takes everything that has a name, and a list has none
			t.Fatalf("%q goes to %+v", model, targets)
		}
	})
}

// Names are the text of clients: what is remembered of them is bounded, and belongs to one configuration.
func TestResolvedNamesAreRememberedForOneConfiguration(t *testing.T) {
	r := newRouter()
	for i := range 2 * maxResolved {
		for range 2 {
			name := "gpt-x" + strconv.Itoa(i)
			if got := r.Resolve(name); len(got) != 2 || got[0].Provider != "one" || got[0].Model != name {
				t.Fatalf("%s: %+v", name, got)
			}
		}
		if n := len(r.current.Load().resolved); n > maxResolved {
			t.Fatalf("%d names are remembered", n)
		}
	}
	r.replace([]Provider{{Name: "other", Models: []string{"*"}}}, nil)
	if got := r.Resolve("gpt-x1"); len(got) != 1 || got[0].Provider != "other" {
		t.Errorf("after another configuration: %+v", got)
	}
}
