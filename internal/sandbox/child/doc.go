// Package child is what a child process of the gateway runs: an interpreter, or the launcher of a
// program that is confined first. It is the only package that contains interpreters, and it is reached
// only by the hidden command "turnpike sandbox-child".
//
//	gateway ── stdin: one order per call ──► quickjs
//	        ◄── stdout, stderr: output, then the mark of the call, and on stderr the reply
//
// What runs here is hostile. The process has no environment, an empty or a private working directory,
// and limits that the kernel keeps. The gateway kills it when a call takes too long.
package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// Main runs the child that the first argument names and returns its exit status.
func Main(args []string) int {
	if len(args) == 0 {
		return fail(fmt.Errorf("no interpreter is named"))
	}
	switch args[0] {
	case sandbox.Bwrap, sandbox.Landlock:
		return fail(launch(args[0], args[1:]))
	}
	if err := limitSelf(args[0]); err != nil {
		return fail(err)
	}
	switch args[0] {
	case sandbox.QuickJS:
		return fail(serve(newQuickJS))
	case sandbox.Wasm:
		return fail(wasm(args[1:]))
	}
	return fail(fmt.Errorf("there is no interpreter %q", args[0]))
}

func fail(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// interpreter runs code and keeps its variables.
type interpreter interface {
	run(code string) sandbox.Reply
}

// serve runs orders of standard input until it ends. The process ends with its input, also while code
// runs: then the gateway is gone.
func serve(start func() (interpreter, error)) error {
	orders := make(chan sandbox.Order)
	go readOrders(os.Stdin, orders)
	i, err := start()
	if err != nil {
		return err
	}
	for order := range orders {
		reply := i.run(order.Code)
		if len(reply.Result) > sandbox.MaxResult {
			reply.Result = strings.ToValidUTF8(reply.Result[:sandbox.MaxResult], "") + "…"
		}
		text, err := json.Marshal(reply)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(os.Stdout, order.Mark); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(os.Stderr, "%s%s\n", order.Mark, text); err != nil {
			return err
		}
	}
	return nil
}

// readOrders ends the process when there are no more orders, or a broken one.
func readOrders(r io.Reader, orders chan<- sandbox.Order) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var order sandbox.Order
		if err == nil {
			err = json.Unmarshal(line, &order)
		}
		if err != nil {
			os.Exit(0)
		}
		orders <- order
	}
}
