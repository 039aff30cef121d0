// Profiled is cmd/turnpike with a profiler, for bench -profile. It needs no debug port.
//
// It takes a CPU profile from start to end and a heap profile at the end:
// PREFIX.cpu.pprof and PREFIX.heap.pprof, where PREFIX is the value of BENCH_PROFILE.
// For each line NAME on standard input it writes PREFIX.NAME.heap.pprof after a
// garbage collection.
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

	"github.com/turnpike-gateway/turnpike/internal/cli"
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
	go readNames(prefix, os.Stdin) // ends with its input, or with the process
	status = cli.Main(ctx, cli.Process{Args: os.Args[1:], Env: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr})
	pprof.StopCPUProfile()
	if err := cpu.Close(); err != nil {
		return status, err
	}
	return status, heap(prefix + ".heap.pprof")
}

// readNames writes a heap profile for each line of in.
func readNames(prefix string, in io.Reader) {
	names := bufio.NewScanner(in)
	for names.Scan() {
		if err := heap(prefix + "." + names.Text() + ".heap.pprof"); err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	}
}

// heap writes a heap profile. The file is complete when it has its name.
func heap(name string) error {
	f, err := os.Create(name + ".part")
	if err != nil {
		return err
	}
	runtime.GC() // a heap profile is that of the last collection
	if err := pprof.WriteHeapProfile(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
