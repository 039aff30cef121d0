// Profiled is the gateway with a profiler beside it, for bench -profile: what
// cmd/turnpike runs, and no port, so that the gateway itself needs neither.
//
// It takes a CPU profile of its whole life and, when it ends, a heap profile:
// PREFIX.cpu.pprof and PREFIX.heap.pprof, where PREFIX is the value of
// BENCH_PROFILE. A line NAME on its standard input makes it collect its garbage
// and write PREFIX.NAME.heap.pprof.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"syscall"

	"github.com/turnpike-gateway/turnpike/internal/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status, err := profiled(ctx, os.Getenv("BENCH_PROFILE"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "profile:", err)
		status = 1
	}
	os.Exit(status)
}

func profiled(ctx context.Context, prefix string) (status int, err error) {
	cpu, err := os.Create(prefix + ".cpu.pprof")
	if err != nil {
		return 1, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return 1, err
	}
	go obey(prefix, os.Stdin) // ends with its input, or with the process
	status = app.Main(ctx, app.Process{Args: os.Args[1:], Env: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr})
	pprof.StopCPUProfile()
	if err := cpu.Close(); err != nil {
		return status, err
	}
	return status, heap(prefix + ".heap.pprof")
}

// obey writes a heap profile for each line of in.
func obey(prefix string, in io.Reader) {
	names := bufio.NewScanner(in)
	for names.Scan() {
		if err := heap(prefix + "." + names.Text() + ".heap.pprof"); err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	}
}

// heap writes a heap profile; the file is whole as soon as it has its name.
func heap(name string) error {
	f, err := os.Create(name + ".part")
	if err != nil {
		return err
	}
	runtime.GC() // else the profile is that of the last one
	if err := pprof.WriteHeapProfile(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
