package codetool

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/item"
)

// A file of a conversation is written without a copy of it in memory, and one that is too large is not written in part.
// J19
func TestLargeFilesAreWrittenAsTheyAreDecoded(t *testing.T) {
	part := func(name string, size int) item.Part {
		return item.Part{Kind: item.File, Name: name, Data: "data:text/csv;base64," + base64.StdEncoding.EncodeToString(make([]byte, size))}
	}
	const size = 16 << 20
	set, _ := file.NewSet(nil, []item.Item{{Kind: item.Message, Role: item.User, Parts: []item.Part{part("a.csv", size), part("b.csv", file.MaxGivenBytes+1)}}})
	at := t.TempDir()
	dir, err := os.OpenRoot(at)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	in := &inputs{files: set}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	in.write(t.Context(), dir)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > size/4 {
		t.Errorf("%d bytes of memory", used)
	}
	if info, err := os.Stat(filepath.Join(at, "a.csv")); err != nil || info.Size() != size {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(at, "b.csv")); err == nil || len(in.notes) != 1 || !strings.Contains(in.notes[0], "more than 33554432 bytes") {
		t.Errorf("%v, %q", err, in.notes)
	}
}
