package child

import (
	"fmt"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// limitSelf sets the limits that the kernel keeps for this process, and takes the possibility to gain
// rights from it.
func limitSelf(kind string) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	signal.Ignore(syscall.SIGXFSZ) // a file that is too large is an error for who writes it
	space := uint64(sandbox.Memory)
	if kind != sandbox.QuickJS {
		space = 2 * sandbox.Memory // an interpreter of WebAssembly reserves more than it uses
	}
	return setLimits(space)
}

// setLimits sets the limits of resources. space is the address space in bytes.
func setLimits(space uint64) error {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"address space", unix.RLIMIT_AS, space},
		{"processor time", unix.RLIMIT_CPU, sandbox.CPUSeconds},
		{"open files", unix.RLIMIT_NOFILE, sandbox.OpenFiles},
		{"size of a file", unix.RLIMIT_FSIZE, sandbox.FileSize},
		{"core dumps", unix.RLIMIT_CORE, 0},
	} {
		if err := setLimit(l.name, l.resource, l.value); err != nil {
			return err
		}
	}
	return nil
}

// setLimit sets a limit that this process cannot raise again. A lower one stays.
func setLimit(name string, resource int, value uint64) error {
	var was unix.Rlimit
	if err := unix.Getrlimit(resource, &was); err != nil {
		return fmt.Errorf("limit of %s: %w", name, err)
	}
	value = min(value, was.Max)
	if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
		return fmt.Errorf("limit of %s: %w", name, err)
	}
	return nil
}
