package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/money"
)

// raiseRun returns the command that raises the limits of a paused run.
func raiseRun(p Process, from *readStore) *cobra.Command {
	m := remote{own: from}
	var rounds, calls, tokens int64
	var usd string
	var active time.Duration
	cmd := &cobra.Command{
		Use:   "raise ID|UUID",
		Short: "Raise the limits of a run that is paused at one of them",
		Long: `Raise the limits of a run that is paused (runtime.on_limit: pause), over the API of a
running gateway. Each flag is the new limit of the run, not what is added to it. The
run goes on where it was: nothing is executed again. No limit can exceed what the org
allows its runs.

A run that waits because a budget has no room goes on when the budget is raised or
its next period begins: run the command without flags then.

Set TURNPIKE_KEY to a key with the role owner or admin, or to the key that started
the run.`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			set := func(flag, member string, value any) {
				if cmd.Flags().Changed(flag) {
					body[member] = value
				}
			}
			set("rounds", "rounds", rounds)
			set("calls", "calls", calls)
			set("tokens", "tokens", tokens)
			set("usd", "usd", usd)
			set("time", "active_ms", active.Milliseconds())
			if usd != "" {
				if _, err := money.ParseUSD(usd); err != nil {
					return fmt.Errorf("--usd: %w", err)
				}
			}
			if err := m.call(cmd.Context(), http.MethodPost, "/v1/runs/"+url.PathEscape(args[0])+"/limits", body, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s goes on\n", plain(args[0]))
			return nil
		},
	}
	m.flags(cmd, p)
	cmd.Flags().Int64Var(&rounds, "rounds", 0, "new limit on rounds")
	cmd.Flags().Int64Var(&calls, "calls", 0, "new limit on tool calls")
	cmd.Flags().Int64Var(&tokens, "tokens", 0, "new limit on tokens")
	cmd.Flags().StringVar(&usd, "usd", "", "new limit on the cost, in US `DOLLARS` such as 2.50")
	cmd.Flags().DurationVar(&active, "time", 0, "new limit on active time, such as 10m")
	return cmd
}
