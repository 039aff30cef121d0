package childproc

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// LimitSelf sets the limits that the kernel keeps for this process. Lower ones that it has already stay.
func LimitSelf(l Limits) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	for resource, value := range map[int]uint64{
		unix.RLIMIT_AS: l.AddressSpace, unix.RLIMIT_CPU: l.CPUSeconds, unix.RLIMIT_NOFILE: 64, unix.RLIMIT_FSIZE: l.FileSize, unix.RLIMIT_CORE: 0,
	} {
		var now unix.Rlimit
		err := unix.Getrlimit(resource, &now)
		if value = min(value, now.Max); err == nil {
			err = unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value})
		}
		if err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	return nil
}
