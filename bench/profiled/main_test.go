package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAHeapProfileIsWrittenForEachName(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "case-1")
	readNames(prefix, strings.NewReader("early\nlate\n"))
	for _, name := range []string{"early", "late"} {
		b, err := os.ReadFile(prefix + "." + name + ".heap.pprof")
		if err != nil || !bytes.HasPrefix(b, []byte{0x1f, 0x8b}) { // pprof's files are gzip
			t.Errorf("%s: %d bytes, error %v", name, len(b), err)
		}
	}
}

func TestACommandIsProfiledFromBeginningToEnd(t *testing.T) {
	os.Args = []string{"turnpike", "version"}
	prefix := filepath.Join(t.TempDir(), "case-1")
	if status, err := profiled(t.Context(), prefix); status != 0 || err != nil {
		t.Fatalf("status %d, error %v", status, err)
	}
	for _, kind := range []string{"cpu", "heap"} {
		if info, err := os.Stat(prefix + "." + kind + ".pprof"); err != nil || info.Size() == 0 {
			t.Errorf("%s profile: %+v, error %v", kind, info, err)
		}
	}
}
