package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// hostPython is Python of the host, confined by bubblewrap (Bwrap) or by Landlock and seccomp (Landlock).
// The gateway's own program starts as the child, gives up its rights, and becomes Python.
type hostPython struct {
	name    string
	program []string
	dir     string
}

// Name implements [Driver].
func (d hostPython) Name() string { return d.name }

// Languages implements [Driver].
func (d hostPython) Languages() []Language { return []Language{Python} }

// Check implements [Driver]. It starts a session and runs code.
func (d hostPython) Check(ctx context.Context) error {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.dir, "check-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	i, err := d.Start(ctx, Python, dir)
	if err != nil {
		return err
	}
	defer i.Close()
	ctx, cancel := context.WithTimeout(ctx, DefaultTimeout)
	defer cancel()
	o, err := i.Run(ctx, "open('f', 'w').write('x') + 41")
	if err == nil && (o.Result != "42" || o.Ended != "") {
		err = fmt.Errorf("a trial gave %q: %s %s", o.Result, o.Ended, lastOf(o.Stderr))
	}
	return err
}

// Start implements [Driver].
func (d hostPython) Start(ctx context.Context, _ Language, dir string) (Interpreter, error) {
	if len(d.program) == 0 {
		return nil, errNoProgram
	}
	l, err := d.launch(dir)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	command := ownCommand(d.program, dir, d.name, string(text))
	p, err := startProcess(ctx, d.name, command, func() string { return "" })
	if err != nil {
		return nil, err
	}
	files := watchFiles(dir)
	p.watch = func() string {
		if d.name == Bwrap && residentOf(p.command.Process.Pid) > Memory {
			return "its processes used more than 2048 MiB together"
		}
		return files()
	}
	return p, nil
}

// launch says how Python is confined.
func (d hostPython) launch(dir string) (Launch, error) {
	python, prefix, err := findPython()
	if err != nil {
		return Launch{}, err
	}
	l := Launch{Command: []string{python, "-I", "-B", "-c", pythonLoop}, Read: []string{prefix}}
	if d.name == Bwrap {
		if l.Bwrap, err = exec.LookPath("bwrap"); err != nil {
			return Launch{}, errors.New("bubblewrap is not installed (apt install bubblewrap)")
		}
		l.Command = append(l.Command, strconv.Itoa(Processes))
	}
	if os.Geteuid() == 0 {
		if l.UID, err = privateUser(dir); err != nil {
			return Launch{}, err
		}
	}
	return l, nil
}

// findPython returns the path of Python, and the directory that it is installed in.
func findPython() (python, prefix string, err error) {
	for _, name := range []string{"/usr/bin/python3", "/usr/local/bin/python3", "python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return path, filepath.Dir(filepath.Dir(path)), nil
		}
	}
	return "", "", errors.New("Python is not installed (apt install python3)") //nolint:staticcheck // a name
}

// privateUser returns a user id for a session, for a gateway that is root: no account has it, and the
// session has it again after a restart.
func privateUser(dir string) (int, error) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return 0, err
	}
	first, count := 1_990_000_000, 10_000_000 // assigned to nothing by convention
	if top := topOf(string(text)); top <= uint64(first+count) {
		first, count = 61_184, 4_000 // as systemd uses for services with dynamic users
		if top <= uint64(first+count) {
			return 0, fmt.Errorf("this container has no user ids from %d on for code sessions; run the gateway as another user than root", first)
		}
	}
	sum := sha256.Sum256([]byte(dir))
	return first + int(binary.BigEndian.Uint64(sum[:])%uint64(count)), nil //nolint:gosec // it is less than count
}

// topOf returns the end of the highest range of user ids of a /proc/…/uid_map.
func topOf(ranges string) uint64 {
	var top uint64
	for line := range strings.Lines(ranges) {
		var inside, outside, count uint64
		if n, _ := fmt.Sscan(line, &inside, &outside, &count); n == 3 {
			top = max(top, inside+count)
		}
	}
	return top
}

// residentOf returns the memory in bytes of a process and of all that it has started.
func residentOf(pid int) int64 {
	total, tree := int64(0), []int{pid}
	for i := 0; i < len(tree) && i < 4*Processes; i++ {
		proc := fmt.Sprintf("/proc/%d/", tree[i])
		var size, resident int64
		if text, err := os.ReadFile(proc + "statm"); err == nil {
			if n, _ := fmt.Sscan(string(text), &size, &resident); n == 2 {
				total += resident * int64(os.Getpagesize())
			}
		}
		threads, _ := os.ReadDir(proc + "task") // an error means that it has ended
		for _, t := range threads {
			text, _ := os.ReadFile(proc + "task/" + t.Name() + "/children")
			for _, child := range strings.Fields(string(text)) {
				if n, err := strconv.Atoi(child); err == nil {
					tree = append(tree, n)
				}
			}
		}
	}
	return total
}
