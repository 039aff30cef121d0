package app

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

func TestADiskBelowItsFloorIsLowUntilThereIsSpaceAgain(t *testing.T) { // K03
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		free, failure := uint64(256<<20), error(nil)
		d := newDisk("data", 256, slog.New(slog.NewTextHandler(&said, nil)))
		d.free = func(string) (uint64, error) { return free, failure }
		for i, c := range []struct {
			free    uint64
			failure error
			low     bool
		}{
			{256 << 20, nil, false}, {256<<20 - 1, nil, true}, {10 << 20, nil, true}, {0, errors.New("no answer"), false},
			{0, nil, true}, {300 << 20, nil, false},
		} {
			time.Sleep(lookEvery)
			free, failure = c.free, c.failure
			err := d.refusal()
			var f *fault.Error
			if (err != nil) != c.low || c.low && (!errors.As(err, &f) || f.Reason != "disk_space_low" || f.RetryAfter == 0 || !strings.Contains(f.Message, "less than min_free_disk_mib (256 MiB)")) {
				t.Errorf("case %d: got %v, want it low: %v", i, err, c.low)
			}
		}
		for what, times := range map[string]int{"level=ERROR": 2, "has space again": 1, "cannot read the free disk space": 1} {
			if n := strings.Count(said.String(), what); n != times {
				t.Errorf("the log has %q %d times, want %d:\n%s", what, n, times, said.String())
			}
		}
		d.setFloor(0)
		free = 0
		time.Sleep(lookEvery)
		if err := d.refusal(); err != nil {
			t.Errorf("without a floor: %v", err)
		}
	})
}

func TestTheFreeSpaceOfADirectoryIsKnown(t *testing.T) {
	if free, err := freeSpace(t.TempDir()); err != nil || free == 0 {
		t.Errorf("got %d, %v", free, err)
	}
	if _, err := freeSpace("/does/not/exist"); err == nil {
		t.Error("a directory that does not exist has free space")
	}
}
