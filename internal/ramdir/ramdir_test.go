package ramdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestADirectoryEndsWithItsTest(t *testing.T) {
	var dir string
	t.Run("use", func(t *testing.T) {
		dir = New(t)
		if other := New(t); other == dir {
			t.Errorf("both directories are %s", dir)
		}
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the test: %v", err)
	}
}

func TestOnlyATmpfsIsRAM(t *testing.T) {
	if n := freeRAM("/proc"); n != 0 {
		t.Errorf("/proc has %d bytes of RAM", n)
	}
}
