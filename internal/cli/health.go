package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/config"
)

// healthTimeout bounds a health check. It is shorter than the timeout of the
// Dockerfile's HEALTHCHECK, so that the check prints its reason.
const healthTimeout = 3 * time.Second

func healthCommand(p Process) *cobra.Command {
	var file, base string
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a running gateway accepts requests",
		Long: `Ask a running gateway whether it accepts requests (GET /readyz). The command needs
no key. It asks the gateway at --url or TURNPIKE_URL. Without both, it reads the
configuration as "turnpike serve" does and asks the address in listen.

The exit status is 0 if the gateway is ready. It is 1 if the gateway is not ready
or stopping, or if there is no answer within 3 seconds.`,
		Example: `  turnpike health
  turnpike health --config turnpike.yaml
  turnpike health --url http://127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if base == "" && file == "" {
				base, _ = p.Env("TURNPIKE_URL")
			}
			if base == "" {
				from := readStore{file: file}
				c, err := from.config(p)
				if err != nil {
					return err
				}
				if base, err = localURL(c); err != nil {
					return err
				}
			}
			base = strings.TrimRight(base, "/")
			if err := checkHealth(cmd.Context(), base); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is ready\n", plain(base))
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE` of the gateway (default: turnpike.yaml, if it exists)")
	cmd.Flags().StringVar(&base, "url", "", "`URL` of the gateway (environment: TURNPIKE_URL)")
	cmd.MarkFlagsMutuallyExclusive("config", "url")
	return cmd
}

// localURL returns where this machine reaches the gateway of the configuration.
func localURL(c *config.Config) (string, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	if strings.Trim(port, "0") == "" {
		return "", errors.New("listen has the port 0, so the configuration does not name the port: name the gateway with --url")
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// checkHealth returns why the gateway does not accept requests; nil if it does.
func checkHealth(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	status, body, err := send(base, req)
	text := strings.TrimSpace(string(body))
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the gateway at %s does not answer within %s", base, healthTimeout)
	case err != nil:
		return err
	case status == http.StatusOK && text == "ready":
		return nil
	case status == http.StatusServiceUnavailable && len(text) < 1<<10:
		return fmt.Errorf("the gateway at %s does not accept requests: %s", base, text)
	}
	return fmt.Errorf("%s answered %d %s, but not as a Turnpike gateway does: check the URL", base, status, http.StatusText(status))
}
