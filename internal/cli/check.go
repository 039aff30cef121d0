package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/httptool"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func configCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Create and check configuration files",
	}
	cmd.AddCommand(checkCommand(p), initCommand())
	return cmd
}

func checkCommand(p Process) *cobra.Command {
	var strict bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file (default: turnpike.yaml) and print every mistake with its position",
		Long: `Read a configuration file and the environment variables and secret files that it
refers to. Nothing is started. Each mistake is one line:

  turnpike.yaml:17:21: orgs[0].runtime.max_rounds: 51 is above max_rounds_cap (50)

"turnpike serve" does not start with a mistake. It starts with what is only a warning:
  - a URL that the outbound policy refuses: of an MCP server, an HTTP tool, a hook, a
    webhook, a bucket or a tool for the web
  - an MCP server whose program does not exist
  - an API key of fewer than 16 characters
  - settings that have no effect
  - a model, a tool or a matcher of an agent that stands for nothing; which tools MCP servers
    have is not known here: "turnpike doctor" asks them
Mistakes are printed first, then warnings.

The exit status is 0 if there is no mistake and 1 otherwise; with --strict it is also 1
if there is a warning.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := usualFile
			if len(args) > 0 {
				path = args[0]
			}
			c, keys, mistakes, err := config.Check(cmd.Context(), path, p.Env, secret.NewResolver(p.Env))
			if err != nil {
				return err
			}
			warnings := slices.Clone(c.Warnings)
			more := refusedServers(c)
			if keys != nil {
				more = append(more, c.ShortKeys(keys)...)
			}
			for _, m := range more {
				if !slices.ContainsFunc(mistakes, func(other config.Mistake) bool { return other.Path == m.Path }) {
					warnings = append(warnings, m.String())
				}
			}
			if len(mistakes) > 0 { // what stops the gateway comes first
				printError(cmd.ErrOrStderr(), &config.Error{Mistakes: mistakes})
			}
			for _, w := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", plain(w))
			}
			switch {
			case len(mistakes) > 0:
				return &exitError{1, nil}
			case strict && len(warnings) > 0:
				return fmt.Errorf("%s has %s, which --strict does not allow", path, counted(len(warnings), "warning"))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is valid\n", plain(path))
			return nil
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "warnings are mistakes, too")
	return cmd
}

// firstConfig is what "config init" writes.
const firstConfig = `# Turnpike. Every key: docs/configuration.md. Check this file with: turnpike config check %[1]s
listen: 127.0.0.1:8080
data: ./turnpike-data                 # the SQLite file

providers:
  - name: openai
    kind: openai                      # any API that speaks chat completions
    base_url: https://api.openai.com/v1
    api_key: env:OPENAI_API_KEY       # a reference to a variable, or file:PATH
    models: ["gpt-*"]
  # A scripted model that needs no key, to try the gateway with:
  # - {name: demo, kind: demo}

orgs:
  - id: default
    features: [mcp_outbound]          # the agent loop, for orgs with an MCP server
    keys:
      - {name: dev, key: env:TURNPIKE_KEY, role: owner}   # what your applications send
    # mcp_servers:
    #   - {name: tools, url: "https://mcp.example.com/mcp"}

# MCP servers on this machine or in a private network must be allowed here:
# outbound:
#   ssrf: {allowlist_cidrs: [127.0.0.0/8]}
`

func initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration file (default: turnpike.yaml)",
		Long: `Write a first configuration file with one provider and one org, and print the
next steps. An existing file is not overwritten.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := usualFile
			if len(args) > 0 {
				path = args[0]
			}
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if errors.Is(err, fs.ErrExist) {
				return fmt.Errorf("%s exists; name another file, or remove it", path)
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(f, firstConfig, path)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), `%[1]s is written. Next:
  export OPENAI_API_KEY=...       the key of your provider
  export TURNPIKE_KEY=%[2]s
  turnpike config check %[1]s
  turnpike serve --config %[1]s
`, plain(path), id.New("tp_"))
			return nil
		},
	}
}

// refusedServers returns the URLs of the file that the outbound policy refuses, and the programs of
// enabled MCP servers that do not exist.
func refusedServers(c *config.Config) []config.Mistake {
	way := egress.New(app.OutboundPolicy(c.Outbound.SSRF), egress.Options{})
	defer way.CloseIdleConnections()
	var all []config.Mistake
	judgeURL := func(path, url string) {
		if url == "" { // it could not be read
			return
		}
		if err := directory.JudgeURL(way)(url); err != nil {
			all = append(all, c.Mistake(path, err.Error()))
		}
	}
	judge := func(path string, m org.MCPServer) {
		if !m.Enabled {
			return
		}
		if len(m.Command) == 0 {
			judgeURL(path+".url", m.URL)
			return
		}
		if _, err := exec.LookPath(m.Command[0]); err != nil {
			all = append(all, c.Mistake(path+".command", fmt.Sprintf("the program %q cannot be started: %v; install it, or write its path", m.Command[0], errors.Unwrap(err))))
		}
	}
	if to := c.ToolDispatch.URL; to != "" {
		judgeURL("tool_dispatch_url", to)
	}
	for i, m := range c.MCPServers {
		judge(fmt.Sprintf("mcp_servers[%d]", i), m.MCPServer)
	}
	for i, o := range c.Orgs {
		for j, m := range o.MCPServers {
			judge(fmt.Sprintf("orgs[%d].mcp_servers[%d]", i, j), m)
		}
		for j, t := range o.HTTPTools {
			if u, err := httptool.ParseURL(t.URL); err == nil && t.Enabled {
				judgeURL(fmt.Sprintf("orgs[%d].http_tools[%d].url", i, j), u.Sample())
			}
		}
		for j, w := range o.Webhooks {
			if w.Enabled {
				judgeURL(fmt.Sprintf("orgs[%d].webhooks[%d].url", i, j), w.URL)
			}
		}
		for _, a := range o.Runtime.Addresses() {
			judgeURL(fmt.Sprintf("orgs[%d].runtime.%s", i, a.Path), a.URL)
		}
		for j, a := range o.Agents {
			at := fmt.Sprintf("orgs[%d].agents[%d]", i, j)
			for k, s := range a.Servers {
				judge(fmt.Sprintf("%s.mcp_servers[%d]", at, k), s.Settings)
			}
			for k, h := range a.Hooks {
				if h.Config.URL != "" {
					judgeURL(fmt.Sprintf("%s.hooks[%d].config.url", at, k), h.Config.URL)
				}
			}
		}
	}
	return all
}
