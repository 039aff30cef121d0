package storecopy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
)

var modified = time.UnixMilli(1_700_000_000_123) // read-only

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// files returns a line for each file of a directory.
func files(t testing.TB, directory string) (lines []string) {
	t.Helper()
	err := disk.Walk(t.Context(), directory, func(e disk.Entry, content io.Reader) error {
		text, err := io.ReadAll(content)
		lines = append(lines, fmt.Sprintf("%s %+v %s %d", e.Name(), e.Space, digestOf(string(text)), e.Modified.UnixMilli()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
