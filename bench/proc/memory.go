package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
)

// RssAnon returns the bytes of the process's own memory, heap and stacks, that
// lie in main memory: what it shares with its file is not counted. It fails
// where there is no /proc.
func (p *Process) RssAnon() (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	n, err := parseStatus(b)
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return n, nil
}

// parseStatus returns the bytes of the line RssAnon of /proc/PID/status.
func parseStatus(status []byte) (int64, error) {
	_, rest, found := bytes.Cut(status, []byte("\nRssAnon:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	number, isKB := bytes.CutSuffix(bytes.TrimSpace(line), []byte(" kB"))
	if !found || !isKB {
		return 0, errors.New("status has no RssAnon")
	}
	kib, err := strconv.ParseInt(string(number), 10, 50)
	return kib << 10, err
}
