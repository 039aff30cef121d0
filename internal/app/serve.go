package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func serveCommand(p Process) *cobra.Command {
	var file, level string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Long: `Run the gateway until SIGINT or SIGTERM, after which requests that are under
way get 25 seconds to finish. Durable runs that need longer than 20 are left to
the next start, which goes on with them, as it does after a crash.

Without --config, the gateway takes OPENAI_API_KEY (and OPENAI_BASE_URL) from
the environment, serves one org called default, and prints a key for it. The
variables TURNPIKE_LISTEN, TURNPIKE_OUTBOUND_SSRF_… and so on override the file.`,
		Example: `  OPENAI_API_KEY=sk-… turnpike serve
  turnpike serve --config turnpike.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, flush, err := newLog(p.Stderr, level)
			if err != nil {
				return err
			}
			defer flush()
			collectLessOften(p.Env)
			c, key, err := loadConfig(p, file)
			if err != nil {
				return err
			}
			a, err := New(cmd.Context(), c, Options{Env: p.Env, Log: log})
			if err != nil {
				return err
			}
			defer a.Close()
			for _, w := range c.Warnings {
				log.Warn(w)
			}
			flush() // what was said of the start comes before it
			announce(cmd.OutOrStdout(), c, a.URL())
			if key != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "  API key, for this start only: %s\n", key)
			}
			return a.Serve(cmd.Context())
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE` (YAML or JSON)")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// loadConfig reads the file, or does without one; then the caller's key is made
// here.
func loadConfig(p Process, file string) (c *config.Config, key string, err error) {
	if file != "" {
		c, err = config.Load(file, p.Env)
		return c, "", err
	}
	c, hasProvider, err := config.Default(p.Env)
	if err != nil {
		return nil, "", err
	}
	if !hasProvider {
		return nil, "", errors.New("no provider: set OPENAI_API_KEY, or name a configuration file with --config, or try \"turnpike demo\"")
	}
	key, err = giveKey(c)
	return c, key, err
}

// giveKey makes a key for an org that exists without a file.
func giveKey(c *config.Config) (string, error) {
	key := id.New("tp_")
	text, err := secret.Parse(key)
	if err != nil {
		return "", err
	}
	c.Orgs[0].Keys = []config.Key{{Name: "generated", Key: text, Role: string(org.Owner)}}
	return key, nil
}

// announce says where the gateway is and what it has.
func announce(out io.Writer, c *config.Config, url string) {
	var providers, orgs []string
	for _, p := range c.Providers {
		providers = append(providers, fmt.Sprintf("%s (%s)", p.Name, strings.Join(p.Models, ", ")))
	}
	for _, o := range c.Orgs {
		orgs = append(orgs, fmt.Sprintf("%s (%s)", o.ID, counted(len(o.MCPServers), "MCP server")))
	}
	fmt.Fprintf(out, "turnpike listens on %s\n  providers: %s\n  orgs: %s\n", url, strings.Join(providers, ", "), strings.Join(orgs, ", "))
}
