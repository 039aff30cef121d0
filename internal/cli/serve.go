package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

func serveCommand(p Process) *cobra.Command {
	var file, level string
	var acceptLoss bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway",
		Long: `Run the gateway until SIGINT or SIGTERM. Requests in progress then get 25 seconds
to finish. Durable runs that need more than 20 seconds continue at the next start.

A second signal ends the process immediately. The next start recovers as after a
crash.

Without --config, the gateway reads turnpike.yaml in the working directory. If
that file does not exist, it reads OPENAI_API_KEY, ANTHROPIC_API_KEY and
GEMINI_API_KEY (and OPENAI_BASE_URL, ANTHROPIC_BASE_URL, GEMINI_BASE_URL) from the
environment, serves one org called default, and prints an API key for it. With
several keys, models called gpt-* and o* go to OpenAI, claude-* to Anthropic and
gemini-* to Gemini. TURNPIKE_BEDROCK=true adds Amazon Bedrock in the region
AWS_REGION, with the credentials that AWS's own clients would use.
Variables such as TURNPIKE_LISTEN override the file.

On SIGHUP the gateway reads the file again and applies what has changed. The log
names each change, and those that need a restart. If the file has mistakes,
nothing changes.`,
		Example: `  OPENAI_API_KEY=sk-… turnpike serve
  turnpike serve --config turnpike.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if level != "" {
				if err := config.CheckLogLevel(level); err != nil {
					return fmt.Errorf("--log-level: %w", err)
				}
			}
			c, key, err := loadConfig(p, file)
			if err != nil {
				return err
			}
			c.Log.Level = cmp.Or(level, c.Log.Level)
			log, logLevel, flush := newLog(p.Stderr, c.Log)
			defer flush()
			collectLessOften(cmd.Context(), p.Env)
			hangups := make(chan os.Signal, 1) // before the start, during which SIGHUP must not end the process
			signal.Notify(hangups, syscall.SIGHUP)
			defer signal.Stop(hangups)
			program, err := p.ownProgram()
			if err != nil {
				return err
			}
			a, err := app.New(cmd.Context(), c, app.Options{Env: p.Env, Log: log, Program: program, AcceptDataLoss: acceptLoss})
			switch {
			case err != nil && cmd.Context().Err() != nil: // it was asked to stop while it started
				log.Info("stopped")
				return nil
			case err != nil:
				return err
			}
			for _, w := range c.Warnings {
				log.Warn(w)
			}
			for _, m := range refusedServers(c) {
				log.Warn(m.String())
			}
			servers, err := a.Orgs(cmd.Context())
			if err != nil {
				log.Warn("the orgs could not be counted", "error", err)
			}
			flush() // what was said of the start comes before it
			announce(cmd.OutOrStdout(), c, servers, a.URL())
			if key != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "  API key, for this start only: %s\n", key)
			}
			reload := reloader{p, configFile(file), level, a, log, logLevel}
			stopReloading := reload.begin(cmd.Context(), hangups)
			err = a.Serve(cmd.Context())
			stopReloading()
			closeFor(a, err)
			if err != nil {
				return err
			}
			log.Info("stopped")
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE` (YAML or JSON)")
	cmd.Flags().StringVar(&level, "log-level", "", "debug, info, warn or error (default: log.level of the configuration)")
	cmd.Flags().BoolVar(&acceptLoss, "accept-data-loss", false, "start although the database has fewer audit rows than the checkpoint file says, and record it in the audit log")
	return cmd
}

// reloader reads the configuration again while the gateway serves.
type reloader struct {
	process  Process
	file     string // "" = the gateway was started without a file
	level    string // of --log-level; "" = the configuration's
	app      *app.App
	log      *slog.Logger
	logLevel *slog.LevelVar
}

// begin reads the configuration again after each signal, until stop is called. stop waits
// for a change that is being applied.
func (r reloader) begin(ctx context.Context, signals <-chan os.Signal) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
				r.reload(ctx)
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// reload reads the file and applies it. It logs every mistake.
func (r reloader) reload(ctx context.Context) {
	if r.file == "" {
		r.log.Error("SIGHUP: there is no configuration file to read again; restart the gateway to change its configuration")
		return
	}
	c, err := config.Load(r.file, r.process.Env)
	if err == nil {
		c.Log.Level = cmp.Or(r.level, c.Log.Level)
		err = r.app.Reload(ctx, c)
	}
	var mistakes *config.Error
	switch {
	case errors.As(err, &mistakes):
		for _, m := range mistakes.Mistakes {
			r.log.Error("the configuration has a mistake; the gateway continues with the previous one", "mistake", m.String())
		}
	case err != nil:
		r.log.Error("the configuration could not be read again", "error", err)
	default:
		setLevel(r.logLevel, c.Log.Level)
		for _, w := range c.Warnings {
			r.log.Warn(w)
		}
		for _, m := range refusedServers(c) {
			r.log.Warn(m.String())
		}
	}
}

// lastTidying is how long a process may take to end when its store takes no more
// writes: nothing that it would write or say is of use.
const lastTidying = 500 * time.Millisecond

// closeFor closes the gateway whose service has ended with err.
func closeFor(a *app.App, err error) {
	if !errors.Is(err, database.ErrPoisoned) {
		a.Close()
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		a.Close()
	}()
	select {
	case <-closed:
	case <-time.After(lastTidying):
	}
}

// usualFile is read where no configuration is named.
const usualFile = "turnpike.yaml"

// configFile returns the file that is named, or the usual one if it exists; ""
// if there is neither.
func configFile(named string) string {
	if named == "" && isFile(usualFile) {
		return usualFile
	}
	return named
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// loadConfig reads the file that is named, or the usual one; without either, the
// environment is the configuration, and the caller's key is made here.
func loadConfig(p Process, file string) (c *config.Config, key string, err error) {
	if file = configFile(file); file != "" {
		c, err = config.Load(file, p.Env)
		return c, "", err
	}
	c, hasProvider, err := config.Default(p.Env)
	if err != nil {
		return nil, "", err
	}
	if !hasProvider {
		return nil, "", errors.New("no provider: set OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY, or TURNPIKE_BEDROCK=true and AWS_REGION, or name a configuration file with --config (\"turnpike config init\" writes one), or try \"turnpike demo\"")
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
	c.Orgs[0].Keys = []config.Key{{Name: "generated", Key: text, Role: org.Owner}}
	return key, nil
}

// shownOrgs is how many orgs the start names.
const shownOrgs = 10

// announce says where the gateway is and what it has. servers is how many MCP servers each
// org has.
func announce(out io.Writer, c *config.Config, servers map[string]int, url string) {
	var providers, orgs []string
	for _, p := range c.Providers {
		providers = append(providers, fmt.Sprintf("%s (%s)", p.Name, strings.Join(p.Models, ", ")))
	}
	for _, id := range slices.Sorted(maps.Keys(servers)) {
		orgs = append(orgs, fmt.Sprintf("%s (%s)", id, counted(servers[id], "MCP server")))
		if len(orgs) == shownOrgs && len(servers) > shownOrgs {
			orgs = append(orgs, fmt.Sprintf("and %d more", len(servers)-shownOrgs))
			break
		}
	}
	fmt.Fprintf(out, "turnpike listens on %s\n  providers: %s\n  orgs: %s\n", url, plain(strings.Join(providers, ", ")), plain(cmp.Or(strings.Join(orgs, ", "), "none")))
}
