package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout bounds a health check. It is shorter than the timeout of the
// Dockerfile's HEALTHCHECK, so that the check prints its reason.
const healthTimeout = 3 * time.Second

func healthCommand(p Process) *cobra.Command {
	var m *remote
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
			base, err := m.address()
			if err != nil {
				return err
			}
			if err := checkHealth(cmd.Context(), base); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is ready\n", plain(base))
			return nil
		},
	}
	m = remoteCommand(cmd, p)
	return cmd
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
