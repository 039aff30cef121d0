package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Names returns the drivers that there are, in the order in which Auto tries them.
func Names() []string { return []string{QuickJS, Wasm, Bwrap, Landlock, Remote} }

// knownDrivers returns all drivers, in the order of Names.
func knownDrivers(o Options) []Driver {
	return []Driver{
		ownProgram{name: QuickJS, languages: []Language{JavaScript}, program: o.Program},
		newWasm(o),
		hostPython{name: Bwrap, program: o.Program, dir: o.Dir},
		hostPython{name: Landlock, program: o.Program, dir: o.Dir},
		remote{url: o.URL, key: o.Key, client: o.Client, shared: o.Shared},
	}
}

// absolute returns the options with absolute paths: children have other working directories.
func absolute(o Options) Options {
	for _, path := range []*string{&o.Dir, &o.Compiled, &o.PythonWasm} {
		if *path == "" {
			continue
		}
		if abs, err := filepath.Abs(*path); err == nil {
			*path = abs
		}
	}
	return o
}

// Status says whether a driver works here.
type Status struct {
	Driver    string
	Languages []Language
	Err       error // why it does not work; nil = it works
}

// Check returns the status of every driver, configured or not, in the order of Names.
func Check(ctx context.Context, o Options) []Status {
	o = absolute(o)
	var list []Status
	for _, d := range knownDrivers(o) {
		list = append(list, Status{d.Name(), d.Languages(), d.Check(ctx)})
	}
	return list
}

// choose returns the driver of each language. Only Auto asks which drivers work; a driver that is named
// is chosen also if it does not work, so that no other takes its place.
func choose(ctx context.Context, names []string, drivers []Driver, log *slog.Logger) (map[Language]Driver, error) {
	auto := slices.Contains(names, Auto)
	if auto && len(names) > 1 {
		return nil, fmt.Errorf("sandbox drivers: %s must be the only one, or absent", Auto)
	}
	var candidates []Driver
	for _, name := range names {
		i := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name() == name })
		if i < 0 && !auto {
			return nil, fmt.Errorf("sandbox drivers: there is no %q; there are %s and %s", name, strings.Join(Names(), ", "), Auto)
		}
		if i >= 0 {
			candidates = append(candidates, drivers[i])
		}
	}
	if auto { // a service is never chosen unasked
		candidates = slices.DeleteFunc(slices.Clone(drivers), func(d Driver) bool { return d.Name() == Remote })
	}
	chosen := map[Language]Driver{}
	for _, d := range candidates {
		wanted := slices.DeleteFunc(slices.Clone(d.Languages()), func(l Language) bool { return chosen[l] != nil })
		if len(wanted) == 0 {
			continue
		}
		err := d.Check(ctx)
		if err != nil && auto {
			log.Debug("a sandbox driver does not work here", "driver", d.Name(), "error", err)
			continue
		}
		for _, l := range wanted {
			chosen[l] = d
		}
		if err != nil {
			log.Error("the sandbox driver of a language does not work here; calls will fail", "driver", d.Name(), "languages", wanted, "error", err)
			continue
		}
		log.Info("sandbox driver", "driver", d.Name(), "languages", wanted)
	}
	return chosen, nil
}

// errNoProgram is the error of drivers that start the gateway's own program.
var errNoProgram = errors.New("this program cannot start itself as a child process; use the turnpike command")

// ownProgram is a driver whose interpreter is in the gateway's own program.
type ownProgram struct {
	name      string
	languages []Language
	program   []string
	arguments []string
}

// Name implements [Driver].
func (d ownProgram) Name() string { return d.name }

// Languages implements [Driver].
func (d ownProgram) Languages() []Language { return d.languages }

// Check implements [Driver].
func (d ownProgram) Check(context.Context) error {
	if len(d.program) == 0 {
		return errNoProgram
	}
	return nil
}

// Start implements [Driver].
func (d ownProgram) Start(ctx context.Context, _ Language, dir string) (Interpreter, error) {
	if err := d.Check(ctx); err != nil {
		return nil, err
	}
	p, err := startProcess(ctx, d.name, ownCommand(d.program, dir, append([]string{d.name}, d.arguments...)...), watchFiles(dir))
	if err != nil {
		return nil, err
	}
	return p, nil
}

// ownCommand returns a child process of the gateway's own program. It inherits no environment.
func ownCommand(program []string, dir string, arguments ...string) *exec.Cmd {
	args := append(slices.Clone(program[1:]), arguments...)
	c := exec.Command(program[0], args...) //nolint:gosec,noctx // its own program; it outlives the call
	c.Env = []string{"GOTRACEBACK=none"}   // a crash says nothing about the machine
	c.Dir = dir
	c.SysProcAttr = ownGroup()
	return c
}
