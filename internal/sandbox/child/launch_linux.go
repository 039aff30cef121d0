package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// launch gives up what the program may not have and becomes the program. Every error is fatal: a program
// that went on would run unconfined. It returns only with an error.
func launch(kind string, args []string) error {
	if len(args) != 1 {
		return errors.New("usage: DRIVER LAUNCH")
	}
	var l sandbox.Launch
	if err := json.Unmarshal([]byte(args[0]), &l); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	if os.Geteuid() == 0 && l.UID == 0 {
		return errors.New("the program would run as root")
	}
	runtime.LockOSThread() // namespaces and filters are those of a thread; the program gets this one's
	if kind == sandbox.Bwrap {
		return intoBwrap(l)
	}
	return intoLandlock(l)
}

// environment is that of a program. home is its working directory.
func environment(home string) []string {
	return []string{"PATH=/usr/bin:/bin", "HOME=" + home, "TMPDIR=" + home, "LANG=C.UTF-8"}
}

// become changes to a user who is nobody else, for good.
func become(uid int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return fmt.Errorf("give up groups: %w", err)
	}
	if err := syscall.Setgid(uid); err != nil {
		return fmt.Errorf("become group %d: %w", uid, err)
	}
	if err := syscall.Setuid(uid); err != nil {
		return fmt.Errorf("become user %d: %w", uid, err)
	}
	return nil
}

// intoLandlock confines this process by Landlock and seccomp and becomes the program.
func intoLandlock(l sandbox.Launch) error {
	abi, err := landlocksys.LandlockGetABIVersion()
	if err != nil || abi < 1 {
		return errors.New("the kernel has no Landlock (Linux 5.13 or newer, enabled at boot)")
	}
	processes := sandbox.Processes
	if l.UID != 0 {
		if err := os.Lchown(".", l.UID, l.UID); err != nil {
			return err
		}
		if dir, err := os.Getwd(); err == nil {
			_, _ = shownTo(l.UID, dir) // root in a container may not mount; then only "." leads to the directory
		}
		if err := become(l.UID); err != nil {
			return err
		}
	} else {
		processes += tasksOf(os.Geteuid())
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil { // a new user has lost it
		return fmt.Errorf("end with the gateway: %w", err)
	}
	home, err := os.Getwd()
	if err == nil {
		_, err = os.Stat(home)
	}
	if err != nil {
		home = "." // its path leads through directories that are the gateway's
	}
	if err := setLimits(sandbox.Memory); err != nil {
		return err
	}
	if err := setLimit("processes", unix.RLIMIT_NPROC, uint64(processes)); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := restrictFiles(l.Read); err != nil {
		return fmt.Errorf("landlock: %w", err)
	}
	if err := loadFilter(); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return fmt.Errorf("%s: %w", l.Command[0], syscall.Exec(l.Command[0], l.Command, environment(home)))
}

// publicFiles and publicDirs return what Python and its libraries read outside of /usr. Nothing in it is secret.
func publicFiles() []string {
	return []string{"/etc/ld.so.cache", "/etc/localtime", "/etc/matplotlibrc"} // Debian has the settings of matplotlib there
}

// In /etc/alternatives Debian has links into /usr, such as to the library that numpy needs.
func publicDirs() []string { return []string{"/etc/alternatives", "/etc/fonts"} }

// localSettings is the one directory below /usr that has settings of the host, such as tokens of package registries.
// Code does not see it.
const localSettings = "/usr/local/etc"

// withoutSettings returns what is in the directories, as paths that leave localSettings out.
func withoutSettings(dirs []string) (all []string) {
	for _, dir := range dirs {
		dir = filepath.Clean(dir)
		entries, err := os.ReadDir(dir)
		switch {
		case dir == localSettings:
		case err != nil || !strings.HasPrefix(localSettings, dir+"/"):
			all = append(all, dir)
		default:
			var inside []string
			for _, e := range entries {
				if e.IsDir() {
					inside = append(inside, filepath.Join(dir, e.Name()))
				}
			}
			all = append(all, withoutSettings(inside)...)
		}
	}
	return all
}

// restrictFiles leaves the program the directories, the working directory, and a few files.
func restrictFiles(read []string) error {
	dirs := slices.Concat([]string{"/usr", "/bin", "/lib", "/lib64", "/lib32"}, publicDirs(), read)
	if err := landlock.V6.BestEffort().Restrict(
		landlock.RODirs(withoutSettings(dirs)...).IgnoreIfMissing(),
		landlock.ROFiles(append(publicFiles(), "/dev/urandom", "/dev/random", "/dev/zero")...).IgnoreIfMissing(),
		landlock.RWFiles("/dev/null"),
		landlock.RWDirs("."),
	); err != nil {
		return err
	}
	f, err := os.Open("/")
	switch {
	case err == nil:
		_ = f.Close()
		return errors.New("the root directory can still be read")
	case !errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("read the root directory, which must be denied: %w", err)
	}
	return nil
}

// tasksOf counts the threads of a user. The limit of processes counts them, too.
func tasksOf(uid int) int {
	n := 0
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		var s unix.Stat_t
		if unix.Stat(p, &s) != nil || int(s.Uid) != uid {
			continue
		}
		threads, _ := os.ReadDir(p + "/task")
		n += len(threads)
	}
	return n
}

// intoBwrap becomes bubblewrap, which starts the program in namespaces of its own.
func intoBwrap(l sandbox.Launch) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	if l.UID != 0 {
		if dir, err = shownTo(l.UID, dir); err != nil {
			return fmt.Errorf("show the directory of the session to another user: %w", err)
		}
		if err := become(l.UID); err != nil {
			return err
		}
	}
	if err := setLimits(sandbox.Memory); err != nil {
		return err
	}
	filter, err := filterFile()
	if err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	args := append([]string{l.Bwrap}, bwrapArguments(l, dir, filter)...)
	return fmt.Errorf("%s: %w", l.Bwrap, syscall.Exec(l.Bwrap, args, environment("/")))
}

// bwrapArguments are the arguments of bubblewrap, with the program.
func bwrapArguments(l sandbox.Launch, dir string, filter int) []string {
	args := []string{
		"--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
		"--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL", "--seccomp", strconv.Itoa(filter),
	}
	for _, path := range append([]string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32"}, l.Read...) {
		if target, err := os.Readlink(path); err == nil {
			args = append(args, "--symlink", target, path)
		} else if path == "/usr" || !strings.HasPrefix(path+"/", "/usr/") {
			args = append(args, "--ro-bind-try", path, path)
		}
	}
	if info, err := os.Stat(localSettings); err == nil && info.IsDir() {
		args = append(args, "--size", "4096", "--tmpfs", localSettings, "--remount-ro", localSettings)
	}
	const room = "67108864" // bytes of memory for temporary files
	for _, path := range append(publicFiles(), publicDirs()...) {
		args = append(args, "--ro-bind-try", path, path)
	}
	args = append(args,
		"--proc", "/proc", "--dev", "/dev", "--size", room, "--tmpfs", "/dev/shm", "--size", room, "--tmpfs", "/tmp",
		"--bind", dir, "/work", "--chdir", "/work", "--remount-ro", "/dev", "--remount-ro", "/", "--clearenv")
	for _, variable := range environment("/work") {
		name, value, _ := strings.Cut(variable, "=")
		args = append(args, "--setenv", name, value)
	}
	return append(append(args, "--"), l.Command...)
}

// shownTo makes a directory reachable for a user who may not enter the directories above it: in a mount
// namespace of this process, where another path leads to it. It returns that path.
func shownTo(uid int, dir string) (string, error) {
	if err := os.Lchown(dir, uid, uid); err != nil {
		return "", err
	}
	place := ""
	for _, p := range []string{"/mnt", "/media", "/srv", "/opt"} {
		if info, err := os.Lstat(p); err == nil && info.IsDir() {
			place = p
			break
		}
	}
	if place == "" {
		return "", errors.New("there is none of the directories /mnt, /media, /srv and /opt")
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return "", fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount(dir, place, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("mount %s: %w", place, err)
	}
	return place, os.Chdir(place)
}
