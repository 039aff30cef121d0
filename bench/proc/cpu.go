package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every Linux
// that Go runs on.
const tick = 10 * time.Millisecond

// CPU returns the processor time, user and system, that the process has used
// so far, in steps of 10 ms. It fails where there is no /proc.
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
