package app

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// diskRetry is how long a caller is asked to wait for space on the disk.
const diskRetry = 30 * time.Second

// disk knows whether the disk of the data directory has room for more work. It
// looks when it is asked, ten times in a second at most. It is safe for
// concurrent use.
type disk struct {
	path  string
	floor atomic.Uint64                // bytes; 0 = never low
	free  func(string) (uint64, error) // bytes that the process may use
	log   *slog.Logger

	next atomic.Int64 // when to look again, in Unix ns
	low  atomic.Pointer[fault.Error]
	lost atomic.Bool // the free space is not known, and the log says so
}

func newDisk(path string, mib int, log *slog.Logger) *disk {
	d := &disk{path: path, free: freeSpace, log: log}
	d.setFloor(mib)
	return d
}

// setFloor sets the space that must be free, in MiB, from now on.
func (d *disk) setFloor(mib int) {
	if d.floor.Swap(uint64(mib)<<20) != uint64(mib)<<20 { //nolint:gosec // it is not negative
		d.next.Store(0)
	}
}

// refusal returns why no work is accepted; nil = there is room. Where the free
// space is not known, there is.
func (d *disk) refusal() error {
	if d.floor.Load() == 0 {
		return nil
	}
	now, next := time.Now().UnixNano(), d.next.Load()
	if now >= next && d.next.CompareAndSwap(next, now+int64(lookEvery)) {
		d.look()
	}
	if low := d.low.Load(); low != nil {
		return low
	}
	return nil
}

func (d *disk) look() {
	free, err := d.free(d.path)
	if err != nil {
		if !d.lost.Swap(true) {
			d.log.Warn("cannot read the free disk space; min_free_disk_mib has no effect", "directory", d.path, "error", err)
		}
		d.low.Store(nil)
		return
	}
	d.lost.Store(false)
	floor := d.floor.Load()
	if free >= floor {
		if d.low.Swap(nil) != nil {
			d.log.Info("the disk has space again; new requests are accepted", "directory", d.path, "free_mib", free>>20)
		}
		return
	}
	low := fault.New(fault.Unavailable, "disk_space_low",
		"the gateway's disk has %d MiB free, less than min_free_disk_mib (%d MiB); nothing was done, try again later", free>>20, floor>>20)
	low.RetryAfter = diskRetry
	if d.low.Swap(low) == nil {
		d.log.Error("the disk is nearly full; new runs and relayed requests are rejected", "directory", d.path, "free_mib", free>>20, "min_free_disk_mib", floor>>20)
	}
}
