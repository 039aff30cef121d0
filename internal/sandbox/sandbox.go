package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Names of drivers.
const (
	QuickJS  = "quickjs"  // JavaScript, in a child process of the gateway's own program
	Wasm     = "wasm"     // Python compiled to WebAssembly, likewise
	Bwrap    = "bwrap"    // Python of the host, confined by bubblewrap
	Landlock = "landlock" // Python of the host, confined by Landlock and seccomp
	Remote   = "remote"   // a sandbox service
	Auto     = "auto"     // QuickJS for JavaScript; for Python the first of Wasm, Bwrap and Landlock that works
)

// Language is what code is written in.
type Language string

// Languages that a driver may have.
const (
	Python     Language = "python"
	JavaScript Language = "javascript"
)

// Limits of an interpreter. Those of resources are of each process.
const (
	Memory     = 2048 << 20 // bytes of address space
	CPUSeconds = 600        // of processor time, over all calls of a session
	OpenFiles  = 1024
	FileSize   = 256 << 20 // bytes of one file
	Processes  = 64        // of a session

	FilesBytes = 2 * FileSize // bytes of all files of a session
	FilesCount = 10_000       // files of a session, with directories

	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 600 * time.Second
)

// Driver starts interpreters. Its methods are safe for concurrent use.
type Driver interface {
	// Name returns the driver's name, one of the constants.
	Name() string
	// Languages returns what the driver runs.
	Languages() []Language
	// Check returns why the driver does not work here; nil = it works.
	Check(ctx context.Context) error
	// Start starts an interpreter. dir is a directory for the files of the session alone. The
	// interpreter outlives ctx. The caller calls Close once it does not need it any more.
	Start(ctx context.Context, language Language, dir string) (Interpreter, error)
}

// Interpreter runs the code of one session.
type Interpreter interface {
	// Run runs code until ctx is done. Calls do not overlap. After an error, and after an Outcome with
	// Ended, the interpreter is of no more use.
	Run(ctx context.Context, code string) (Outcome, error)
	// Close ends the interpreter and everything that it has started, and returns when it has ended. It
	// may be called more than once, and while Run runs.
	Close()
}

// Outcome is what became of code.
type Outcome struct {
	Driver         string
	Stdout, Stderr string // as far as it is kept
	StdoutDropped  int64  // bytes beyond it
	StderrDropped  int64
	Result         string // value of the last expression as text; "" = none
	Exit           int    // 0 = no error; it means nothing if Ended is set
	Ended          string // why the interpreter has ended; "" = it has not
	StateLost      bool   // the session had variables, and this call did not have them
	// Notes say which images the code wanted to show and could not, and why.
	Notes []string

	shown string // begins the names of the files of images that the code has shown; "" = there are none
}

// Errors of Manager.Run. Their texts are for the model.
var (
	ErrNotConfigured = errors.New("Code sandbox is not configured") //nolint:staticcheck // the text that clients know
	ErrBusy          = errors.New("all code sessions are busy; try again later")
)

// UnavailableError says that a driver is configured and does not work.
type UnavailableError struct {
	Driver string
	Cause  error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the sandbox driver %s does not work here: %v", e.Driver, e.Cause)
}

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Cause }
