package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// Process is what a command gets of the world.
type Process struct {
	Args   []string // without the program's name
	Env    config.Environment
	Stdin  io.Reader // nil is the process's own
	Stdout io.Writer
	Stderr io.Writer
}

// Main runs the command that the arguments name and returns the exit status: 0,
// or 1 after an error, which stands on Stderr; "outbound check" has statuses of
// its own. It returns soon after ctx is done.
func Main(ctx context.Context, p Process) int {
	root := &cobra.Command{
		Use:   "turnpike",
		Short: "An agent gateway: OpenAI in front, any model behind, the tool loop in between",
		Long: `Turnpike stands between an OpenAI-style client and a model provider and runs the
agent loop on the server: it calls the model, executes the tools that it owns
(MCP servers), feeds the results back and answers on the API that the client
already speaks.

Begin with:
  turnpike demo                          everything in one process, offline
  turnpike serve                         with OPENAI_API_KEY in the environment
  turnpike serve --config turnpike.yaml  with your own providers and servers`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.AddCommand(serveCommand(p), demoCommand(p), runsCommand(p), keysCommand(p), secretsCommand(p), mcpCommand(p), outboundCommand(p), auditCommand(p), configCommand(p), versionCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		return report(p.Stderr, err)
	}
	return 0
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

// printError shows configuration mistakes as they are: one a line, each with
// its place.
func printError(w io.Writer, err error) {
	var mistakes *config.Error
	if errors.As(err, &mistakes) {
		fmt.Fprintln(w, mistakes)
		return
	}
	fmt.Fprintln(w, "turnpike:", err)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.OutOrStdout(), "turnpike", version())
			return nil
		},
	}
}

// version returns what the build recorded of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, revision := info.Main.Version, ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			revision = s.Value[:min(12, len(s.Value))]
		}
	}
	if v == "" || v == "(devel)" {
		v = "devel"
	}
	if revision != "" {
		v += " " + revision
	}
	return v + " " + info.GoVersion
}
