package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAProgramThatLooksUpMethodsByNameIsNoRelease(t *testing.T) {
	const pruned = `# example.com/cmd
_ -> main.main
main.main -> go:string."a -> b"
main.main -> cobra.(*Command).Execute
cobra.(*Command).Execute -> main.main
`
	if err := checkPruned([]byte(pruned)); err != nil {
		t.Error(err)
	}
	err := checkPruned([]byte(pruned + `other.unused -> template.(*state).evalField <ReflectMethod>
cobra.(*Command).Execute -> cobra.tmpl
cobra.tmpl -> template.(*state).walk
main.main -> template.(*state).walk
template.(*state).walk -> template.(*state).evalField <ReflectMethod>
template.(*state).evalField <ReflectMethod> -> reflect.Value.MethodByName
`))
	if want := "\t_\n\tmain.main\n\ttemplate.(*state).walk\n\ttemplate.(*state).evalField <ReflectMethod>"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want the shortest way\n%s", err, want)
	}
	if got := withoutReferences([]byte(pruned)); got != "# example.com/cmd\n" {
		t.Errorf("messages %q", got)
	}
}

func TestABinaryThatIsTooLargeIsNoRelease(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python.wasm")
	if err := os.WriteFile(python, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, python string
		size         int
		fits         bool
	}{
		{"at the limit", "", largestProgram, true},
		{"above it", "", largestProgram + 1, false},
		{"at the limit beside Python", python, largestProgram + 1000, true},
		{"above it beside Python", python, largestProgram + 1001, false},
	} {
		if err := (&release{python: tt.python}).checkSize(tt.size); (err == nil) != tt.fits {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
