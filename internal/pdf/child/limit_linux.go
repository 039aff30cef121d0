package child

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/turnpike-gateway/turnpike/internal/pdf"
)

// addressSpace is enough for the compiler of WebAssembly, which reserves more than it uses.
const addressSpace = 4 << 30

// limitSelf sets the limits that the kernel keeps for this process.
func limitSelf() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	for resource, value := range map[int]uint64{
		unix.RLIMIT_AS: addressSpace, unix.RLIMIT_CPU: pdf.CPUSeconds, unix.RLIMIT_NOFILE: 64, unix.RLIMIT_FSIZE: 128 << 20, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("limit %d: %w", resource, err)
		}
	}
	return nil
}
