// Command turnpike is the agent gateway. Run it with --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/turnpike-gateway/turnpike/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	status := cli.Main(ctx, cli.Process{Args: os.Args[1:], Env: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(status)
}
