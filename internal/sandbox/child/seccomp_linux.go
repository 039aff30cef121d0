package child

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied are system calls that no program in a sandbox needs: they reach other processes or namespaces,
// take memory that no limit counts, or have let programs out of sandboxes.
func denied() []string {
	return []string{
		"acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "create_module", "delete_module", "fanotify_init",
		"finit_module", "fsconfig", "fsmount", "fsopen", "fspick", "get_mempolicy", "init_module", "io_uring_enter", "io_uring_register",
		"io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mbind",
		"memfd_create", "memfd_secret", "migrate_pages", "mount", "mount_setattr", "move_mount", "move_pages", "mq_notify", "mq_open",
		"msgctl", "msgget", "msgrcv", "msgsnd", "name_to_handle_at", "nfsservctl", "open_by_handle_at", "open_tree",
		"perf_event_open", "personality", "pidfd_getfd", "pidfd_open", "pidfd_send_signal", "pivot_root", "process_madvise",
		"process_mrelease", "process_vm_readv", "process_vm_writev", "ptrace", "query_module", "quotactl", "quotactl_fd", "reboot",
		"request_key", "sched_setattr", "semctl", "semget", "semop", "semtimedop", "set_mempolicy", "setdomainname", "sethostname",
		"setns", "settimeofday", "shmat", "shmctl", "shmdt", "shmget", "stime", "swapoff", "swapon", "sysfs", "syslog",
		"umount", "umount2", "unshare", "uselib", "userfaultfd", "ustat", "vhangup", "vm86", "vm86old", "vmsplice",
	}
}

// deniedOutside are denied where the program shares the host's processes and network with others. It
// starts no processes, so that its end is the end of all that it has done.
func deniedOutside() []string {
	return []string{
		"accept", "accept4", "bind", "connect", "fork", "ioprio_set", "kill", "listen", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
		"sched_setaffinity", "sched_setparam", "sched_setscheduler", "setpgid", "setpriority", "setsid", "socket", "tkill", "vfork",
	}
}

// filter is a filter of system calls. outside says that the program is in no namespaces.
func filter(outside bool) (seccomp.Policy, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return seccomp.Policy{}, err
	}
	names := denied()
	groups := []seccomp.SyscallGroup{{
		Names: known(info, []string{"clone3"}), Action: seccomp.ActionErrno | seccomp.Action(unix.ENOSYS), // then programs use clone, whose flags are seen
	}}
	if outside {
		names = append(names, deniedOutside()...)
		groups = append(groups, seccomp.SyscallGroup{Action: seccomp.ActionErrno, NamesWithCondtions: []seccomp.NameWithConditions{
			{Name: "clone", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.BitsNotSet, Value: unix.CLONE_THREAD}}},
			{Name: "tgkill", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.NotEqual, Value: uint64(os.Getpid())}}}, //nolint:gosec // it is positive
			{Name: "prlimit64", Conditions: seccomp.ArgumentConditions{{Argument: 0, Operation: seccomp.NotEqual, Value: 0}}},
			{Name: "fcntl", Conditions: seccomp.ArgumentConditions{{Argument: 1, Operation: seccomp.Equal, Value: unix.F_SETOWN}}},
			{Name: "fcntl", Conditions: seccomp.ArgumentConditions{{Argument: 1, Operation: seccomp.Equal, Value: unix.F_SETOWN_EX}}},
			{Name: "fcntl", Conditions: seccomp.ArgumentConditions{{Argument: 1, Operation: seccomp.Equal, Value: unix.F_SETSIG}}},
			{Name: "ioctl", Conditions: seccomp.ArgumentConditions{{Argument: 1, Operation: seccomp.Equal, Value: 0x8901}}}, // FIOSETOWN
			{Name: "ioctl", Conditions: seccomp.ArgumentConditions{{Argument: 1, Operation: seccomp.Equal, Value: 0x8902}}}, // SIOCSPGRP
		}})
	}
	groups = append(groups, seccomp.SyscallGroup{Names: known(info, names), Action: seccomp.ActionErrno})
	return seccomp.Policy{DefaultAction: seccomp.ActionAllow, Syscalls: groups}, nil
}

// known returns the names of system calls that this architecture has.
func known(info *arch.Info, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, ok := info.SyscallNames[name]
		return !ok
	})
}

// loadFilter filters the system calls of this process.
func loadFilter() error {
	policy, err := filter(true)
	if err != nil {
		return err
	}
	return seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: policy})
}

// filterFile returns a descriptor of a file with a filter, which a program that this process becomes
// inherits.
func filterFile() (int, error) {
	policy, err := filter(false)
	if err != nil {
		return 0, err
	}
	program, err := policy.Assemble()
	if err != nil {
		return 0, err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return 0, err
	}
	fd, err := unix.MemfdCreate("seccomp", 0)
	if err != nil {
		return 0, err
	}
	var data []byte
	for _, i := range raw { // struct sock_filter
		data = binary.NativeEndian.AppendUint16(data, i.Op)
		data = append(data, i.Jt, i.Jf)
		data = binary.NativeEndian.AppendUint32(data, i.K)
	}
	if n, err := unix.Write(fd, data); err != nil || n != len(data) {
		return 0, fmt.Errorf("write %d bytes: %d, %w", len(data), n, err)
	}
	_, err = unix.Seek(fd, 0, 0)
	return fd, err
}
