package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ is 100 on all systems that Go
// supports.
const tick = 10 * time.Millisecond

// CPU returns the user and system time of the process so far, in steps of 10 ms. It
// fails where there is no /proc.
func (p *Process) CPU() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, fmt.Errorf("cpu of %s: %w", p.name, err)
	}
	d, err := parseStat(b)
	if err != nil {
		return 0, fmt.Errorf("cpu of %s: %w", p.name, err)
	}
	return d, nil
}

// parseStat returns utime + stime of a line of /proc/PID/stat. The second
// field is the command in parentheses and may hold anything, also parentheses,
// so fields are counted from the last one.
func parseStat(line []byte) (time.Duration, error) {
	const utime, stime = 14 - 3, 15 - 3 // counted from the field after the command
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return 0, errors.New("stat line has no command")
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) <= stime {
		return 0, errors.New("stat line is too short")
	}
	user, err1 := strconv.ParseUint(string(fields[utime]), 10, 40)
	system, err2 := strconv.ParseUint(string(fields[stime]), 10, 40)
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	return time.Duration(user+system) * tick, nil
}

// RssAnon returns the resident anonymous memory of the process, heap and stacks, in
// bytes. It fails where there is no /proc.
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
