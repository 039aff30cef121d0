package archtest

import (
	"go/types"
	"testing"
)

// maxMethods is how many methods a type may have, promoted ones included.
const maxMethods = 29

func TestNoTypeOfTheDriverHasTooManyMethods(t *testing.T) {
	names := []string{"internal/journal", "internal/eventlog", "internal/catalog", "internal/toolexec", "internal/run"}
	load := newLoader(t, "./internal/run")
	for _, p := range named(t, names) {
		pkg, _ := load.load(t, p)
		for _, name := range pkg.Scope().Names() {
			object, ok := pkg.Scope().Lookup(name).(*types.TypeName)
			if !ok || object.IsAlias() {
				continue
			}
			if n := methods(object.Type()); n > maxMethods {
				t.Errorf("%s.%s has %d methods, promoted ones included; at most %d are allowed. A type with more has several duties, "+
					"and all code that gets a value of it can call all of them. Move a duty with its fields into a type of its own, "+
					"hold that in a named field instead of embedding it, and pass on only what the receiver needs.",
					p.name(), name, n, maxMethods)
			}
		}
	}
}

// methods returns the number of methods that a value of the type, or a pointer to it, has.
func methods(t types.Type) int {
	if !types.IsInterface(t) {
		t = types.NewPointer(t)
	}
	return types.NewMethodSet(t).Len()
}

func TestPromotedMethodsAreCounted(t *testing.T) {
	many := types.NewPackage("many", "many")
	inner := types.NewNamed(types.NewTypeName(0, many, "inner", nil), types.NewStruct(nil, nil), nil)
	for _, name := range []string{"a", "b"} {
		receiver := types.NewVar(0, many, "", types.NewPointer(inner))
		inner.AddMethod(types.NewFunc(0, many, name, types.NewSignatureType(receiver, nil, nil, nil, nil, false)))
	}
	embedded := types.NewField(0, many, "inner", types.NewPointer(inner), true)
	outer := types.NewNamed(types.NewTypeName(0, many, "outer", nil), types.NewStruct([]*types.Var{embedded}, nil), nil)
	if in, out := methods(inner), methods(outer); in != 2 || out != 2 {
		t.Errorf("inner has %d methods and outer %d, want 2 each", in, out)
	}
}
