// Package cli is the program: its commands, what they read from the command line and the
// environment, and what they print.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
	pdfchild "github.com/turnpike-gateway/turnpike/internal/pdf/child"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/child"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

// sandboxChild is the command that runs an interpreter: the gateway starts itself with it.
const sandboxChild = "sandbox-child"

// Process is what a command gets of the world.
type Process struct {
	Args   []string // without the program's name
	Env    config.Environment
	Stdin  io.Reader // nil is the process's own
	Stdout io.Writer
	Stderr io.Writer

	Program []string // starts this program as a child process; nil = its own file
}

// Main runs the command that the arguments name and returns the exit status: 0,
// or 1 after an error, which stands on Stderr; "outbound check" and "audit
// verify" have statuses of their own. No control character but line breaks and
// tabs comes out. It returns soon after ctx is done.
func Main(ctx context.Context, p Process) int {
	if len(p.Args) > 0 && p.Args[0] == sandboxChild {
		return child.Main(p.Args[1:])
	}
	if len(p.Args) > 0 && p.Args[0] == pdf.Command {
		return pdfchild.Main(p.Args[1:])
	}
	if len(p.Args) > 0 && p.Args[0] == sqltool.Command {
		return sqltool.ChildMain()
	}
	p.Stdout, p.Stderr = terminal{p.Stdout}, terminal{p.Stderr}
	if err := Command(p).ExecuteContext(ctx); err != nil {
		return report(p.Stderr, err)
	}
	return 0
}

// Command returns the program with all its commands.
func Command(p Process) *cobra.Command {
	root := &cobra.Command{
		Use:   "turnpike",
		Short: "An agent gateway between OpenAI-compatible clients and model providers",
		Long: `Turnpike is an agent gateway between OpenAI-compatible clients and model
providers. It runs the agent loop on the server: it calls the model, executes
MCP tools, sends the results back to the model, and answers over the OpenAI API.

Start with:
  turnpike demo                          offline demo in one process
  turnpike serve                         uses OPENAI_API_KEY, ANTHROPIC_API_KEY, GEMINI_API_KEY
  turnpike serve --config turnpike.yaml  uses your providers and MCP servers`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// A template for cobra's own flag would link text/template, which keeps the linker from removing unused methods: 12 MB.
	version := root.Flags().BoolP("version", "v", false, "version for turnpike")
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *version {
			return printVersion(cmd)
		}
		return cmd.Help()
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.AddCommand(serveCommand(p), demoCommand(p), healthCommand(p), runsCommand(p), approvalsCommand(p), keysCommand(p), secretsCommand(p), webhooksCommand(p), agentsCommand(p), sessionsCommand(p), mcpCommand(p), outboundCommand(p), doctorCommand(p), sandboxCommand(p), ratesCommand(p), budgetsCommand(p), usageCommand(p), auditCommand(p), backupCommand(p), restoreCommand(p), storeCommand(p), configCommand(p), versionCommand())
	for _, group := range root.Commands() {
		refuseUnknown(group)
	}
	return root
}

// refuseUnknown makes a word that is not a command of the group an error. Without it, cobra prints the help and succeeds.
func refuseUnknown(group *cobra.Command) {
	if !group.HasSubCommands() || group.Runnable() {
		return
	}
	group.DisableFlagsInUseLine, group.SuggestionsMinimumDistance = true, 2
	group.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
			text += "; did you mean " + strings.Join(similar, " or ") + "?"
		}
		return errors.New(text)
	}
	group.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

// exitError ends the program with a status of its own. One without a cause has
// said on Stdout what there is to say.
type exitError struct {
	status int
	cause  error
}

// Error returns the cause's text.
func (e *exitError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.cause.Error()
}

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.cause }

// misuse marks an error, if it is one, as a mistake of whoever typed the
// command, for commands whose status 1 is an answer.
func misuse(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{2, err}
}

// report shows an error and returns the exit status that it stands for.
func report(w io.Writer, err error) int {
	var e *exitError
	if !errors.As(err, &e) {
		printError(w, err)
		return 1
	}
	if e.cause != nil {
		printError(w, e.cause)
	}
	return e.status
}

// printError shows an error in one line, and configuration mistakes one a line,
// each with its place.
func printError(w io.Writer, err error) {
	var config *config.Error
	if errors.As(err, &config) {
		for _, m := range config.Mistakes {
			fmt.Fprintln(w, plain(m.String()))
		}
		return
	}
	fmt.Fprintln(w, "turnpike:", plain(strings.ReplaceAll(err.Error(), "\n", "; ")))
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd)
		},
	}
}

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "turnpike", app.Version())
	return err
}
