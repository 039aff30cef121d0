package app

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestTheLinkerSetsTheVersion(t *testing.T) {
	if release != "" {
		t.Fatalf("this test binary is the release %q", release)
	}
	release = "v1.2.3-rc.1"
	defer func() { release = "" }()
	if got, want := Version(), "v1.2.3-rc.1 "+runtime.Version(); got != want {
		t.Errorf("the version is %q, want %q", got, want)
	}
	const variable = "github.com/turnpike-gateway/turnpike/internal/app.release"
	for _, name := range []string{"Dockerfile", "internal/release/main.go", "internal/app/version.go"} {
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), variable) {
			t.Errorf("%s does not name %s", name, variable)
		}
	}
}
