package blob

import (
	"fmt"
	"io"
	"sync"
)

// Limits bound what is stored. A field of 0 is no limit.
type Limits struct {
	Bytes int64
	Files int64
}

// Meter counts what is stored against limits, before it is written. The zero value is empty and has no limits until
// they are given. It is safe for concurrent use.
type Meter struct {
	mu   sync.Mutex
	used Usage
}

// Set replaces what is counted.
func (m *Meter) Set(u Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used = u
}

// Used returns what is counted.
func (m *Meter) Used() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

// Reserve counts more bytes and files. It returns false, and counts nothing, if they do not fit.
func (m *Meter) Reserve(more Usage, most Limits) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if most.Bytes > 0 && more.Bytes > 0 && m.used.Bytes+more.Bytes > most.Bytes || most.Files > 0 && more.Files > 0 && m.used.Files+more.Files > most.Files {
		return false
	}
	m.used.Bytes += more.Bytes
	m.used.Files += more.Files
	return true
}

// Release takes back what was counted.
func (m *Meter) Release(less Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used.Bytes = max(0, m.used.Bytes-less.Bytes)
	m.used.Files = max(0, m.used.Files-less.Files)
}

// Size returns the size of a body, which is at its beginning again.
func Size(body io.Seeker) (int64, error) {
	n, err := body.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = body.Seek(0, io.SeekStart)
	}
	return n, err
}

// CheckSize returns a *[LimitError] if a file is larger than a file of the bucket may be.
func CheckSize(size, most int64) error {
	if size > most {
		return &LimitError{fmt.Sprintf("the file has %d bytes; a file of the bucket may have at most %d", size, most), "max_file_mib of the bucket"}
	}
	return nil
}

// QuotaError returns the error for a file that does not fit into its bucket.
func QuotaError(quota int64) error {
	return &LimitError{fmt.Sprintf("the files of the bucket may have %d MiB together; delete some", quota>>20), "quota_mib of the bucket"}
}
