// Command turnpike is the agent gateway. Run it with --help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/turnpike-gateway/turnpike/internal/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	status := app.Main(ctx, app.Process{Args: os.Args[1:], Env: os.LookupEnv, Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(status)
}
