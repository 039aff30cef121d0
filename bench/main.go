// Bench measures what the gateway costs and compares it with its gates:
//
//	go run ./bench            the whole table, in some minutes
//	go run ./bench -quick     shorter passes, for CI
//	go run ./bench -list      the cases
//	go run ./bench -h         the rest
//
// It builds the gateway, starts it between fake servers on 127.0.0.1, loads it,
// prints one table and exits 1 when a gate fails. Each server is a process of
// its own, most of them this same binary:
//
//	bench ──┬─ load ─────────► bench child baseline ──► bench child upstream     relay cases
//	        ├─ load ─────────► turnpike serve ────────► bench child upstream
//	        ├─ runs ─────────► turnpike serve ───┬───► bench child model          loop cases
//	        └─ runs ─────────► bench child loop ─┴───► bench child tool (MCP)
//
// README.md says what each case measures and how to read the table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := bench(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// bench is main without the process: it returns the exit code, 0 when every
// gate held, 1 when one did not or a case could not be measured, 2 for a
// command line that makes no sense.
func bench(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	if len(args) == 2 && args[0] == childCommand {
		if err := child(ctx, args[1], in, out); err != nil {
			fmt.Fprintln(errs, "bench child:", err)
			return 1
		}
		return 0
	}
	opt, err := parse(args, errs)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errs, "bench:", err)
		return 2
	}
	if opt.list {
		printCases(out)
		return 0
	}
	passed, err := measure(ctx, opt, out, errs)
	if err != nil {
		fmt.Fprintln(errs, "bench:", err)
		return 1
	}
	if !passed {
		return 1
	}
	return 0
}
