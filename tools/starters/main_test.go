package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const inside = `package p

import "os/exec"

func look() error { _, err := exec.LookPath("sh"); return err }
`

const outside = `package p_test

import (
	"os/exec"
	"testing"

	"example.org/other"
)

type rig struct{ other.Rig }

type quiet struct{}

func (r *rig) start()  { _ = exec.Command("go").Run() }
func (quiet) start()   {}
func newRig() *rig     { return &rig{} }
func through(r *rig)   { r.start() }

func TestByAMethod(t *testing.T)      { newRig().start() }
func TestByAFunction(t *testing.T)    { t.Run("", func(*testing.T) { through(newRig()) }) }
func TestByAServer(t *testing.T)      { other.Run("mcp_servers: [{name: s, command: [npx]}]") }
func TestOfAnotherType(t *testing.T)  { quiet{}.start() }
func TestOfNothing(t *testing.T)      { other.Run("") }
`

func TestTestsThatStartProgramsAreFoundByWhatTheyCall(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.org/m\n")
	write("p/p.go", inside)
	write("p/p_test.go", outside)
	write("p/inside_test.go", "package p\n\nimport \"testing\"\n\nfunc TestByLooking(t *testing.T) { _ = look() }\n")
	write("p/testdata/p_test.go", outside)
	write("other/go.mod", "module example.org/other\n")
	write("other/p_test.go", outside)
	t.Chdir(root)
	for calls, want := range map[string]string{
		"LookPath,Command": "./p ^(TestByAFunction|TestByAMethod|TestByAServer|TestByLooking)$\n",
		"LookPath":         "./p ^(TestByLooking)$\n",
		"StartProcess":     "",
	} {
		var out strings.Builder
		if err := list(&out, ".", strings.Split(calls, ",")); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("%s: %q, want %q", calls, out.String(), want)
		}
	}
}
