package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

func usageCommand(p Process) *cobra.Command {
	var from readStore
	var choose auditFlags
	var by string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Add up an org's requests, tokens and costs",
		Long: `Add up what the audit log has about requests that were sent to a provider: rounds
of runs, and relayed requests. Relayed requests have tokens only under a budget.
Cached tokens are part of the input. Days are in UTC. Of an org and a day, 10,000 end
users and 1,000 models have sums of their own; "(the rest)" are the others. Parts of
days are added up from audit rows, and need them.

With --json, each line of the table is one JSON object per line.`,
		Example: "  turnpike usage --by day,model --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			groups, err := audit.ParseUsageBy(by)
			if err != nil {
				return fmt.Errorf("--by: %w", err)
			}
			times, err := choose.query()
			if err != nil {
				return err
			}
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			orgID, err := from.oneOrg(cmd.Context(), p, store)
			if err != nil {
				return err
			}
			sums, err := audit.AddUsage(cmd.Context(), orgID, store, audit.UsageQuery{From: times.From, To: times.To, By: groups})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSONUsage(cmd, sums, groups)
			}
			return printUsage(cmd, sums, groups)
		},
	}
	from.flags(cmd)
	cmd.Flags().StringVar(&by, "by", "", "`LIST` of what to group by: "+strings.Join(audit.UsageGroups(), ", ")+" (default: one sum)")
	cmd.Flags().StringVar(&choose.from, "from", "", "only requests at or after this `TIME`, for example 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&choose.to, "to", "", "only requests before this `TIME`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table")
	return cmd
}

func printJSONUsage(cmd *cobra.Command, sums []audit.Usage, by []string) error {
	for _, u := range sums {
		if err := printJSON(cmd.OutOrStdout(), admin.NewUsageView(u, by)); err != nil {
			return err
		}
	}
	return nil
}

func printUsage(cmd *cobra.Command, sums []audit.Usage, by []string) error {
	var headings []any
	for _, one := range by {
		headings = append(headings, strings.ToUpper(strings.ReplaceAll(one, "_", " ")))
	}
	t := newTable(cmd.OutOrStdout(), append(headings, "REQUESTS", "INPUT", "CACHED", "OUTPUT", "TOOL CALLS", "GPU (MS)", "COST (USD)")...)
	for _, u := range sums {
		var cells []any
		for _, one := range by {
			cells = append(cells, usageName(u, one))
		}
		t.row(append(cells, u.Requests, u.InputTokens, u.CachedTokens, u.OutputTokens, u.ToolCalls, u.GPUMS, money.Nano(u.CostNanoUSD))...)
	}
	return t.flush()
}

// usageName returns what a sum has of one of the groups.
func usageName(u audit.Usage, by string) string {
	if slices.Contains(u.Rest.Names([]string{by}), by) {
		return "(the rest)"
	}
	return u.Name(by)
}

// usedPage is how many budgets are read at once.
const usedPage = 200

func budgetsCommand(p Process) *cobra.Command {
	var from readStore
	var scope string
	var ended, asJSON bool
	cmd := &cobra.Command{
		Use:   "budgets",
		Short: "List what is spent of an org's budgets",
		Long: `List what is spent and reserved of an org's budgets. Budgets of which nothing was
spent yet are not listed. What a running gateway has drawn for short requests counts
as reserved; it stores what they spent once a minute.

With --json, each budget is one JSON object per line.`,
		Example: "  turnpike budgets --scope key",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			scopes := []string{budget.ScopeOrg, budget.ScopeKey, budget.ScopeEndUser}
			if scope != "" && !slices.Contains(scopes, scope) {
				return fmt.Errorf("--scope: unknown scope %q; use %s", scope, strings.Join(scopes, ", "))
			}
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			orgID, err := from.oneOrg(cmd.Context(), p, store)
			if err != nil {
				return err
			}
			prefix := ""
			if scope != "" {
				prefix = scope + "/"
			}
			show, flush := budgetTable(cmd)
			if asJSON {
				show = func(u journal.Used) error { return printJSON(cmd.OutOrStdout(), admin.NewBudgetView(u)) }
				flush = func() error { return nil }
			}
			now := time.Now().UnixMilli()
			for after := ""; ; {
				page, err := store.UsedAll(cmd.Context(), orgID, prefix, after, usedPage)
				if err != nil {
					return err
				}
				for _, u := range page {
					after = u.Budget.Scope
					if !ended && u.Budget.EndsAt > 0 && u.Budget.EndsAt <= now {
						continue
					}
					if err := show(u); err != nil {
						return err
					}
				}
				if len(page) < usedPage {
					return flush()
				}
			}
		},
	}
	from.flags(cmd)
	cmd.Flags().StringVar(&scope, "scope", "", "only budgets of this `SCOPE`: org, key or end_user")
	cmd.Flags().BoolVar(&ended, "ended", false, "also budgets of days and months that are over")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table")
	return cmd
}

// budgetTable returns functions that print a budget, and the end of the table.
func budgetTable(cmd *cobra.Command) (show func(journal.Used) error, flush func() error) {
	t := newTable(cmd.OutOrStdout(), "WHOSE", "PERIOD", "LIMIT", "SPENT", "RESERVED", "RESETS")
	show = func(u journal.Used) error {
		kind, id, period, window, _ := budget.ParseWindow(u.Budget.Scope)
		resets := "never"
		if u.Budget.EndsAt > 0 {
			resets = time.UnixMilli(u.Budget.EndsAt).UTC().Format(time.RFC3339)
		}
		t.row(strings.TrimSpace(kind+" "+id), strings.TrimSpace(string(period)+" "+window),
			limitedText(u.Budget.Limit, u.Budget.Limit), limitedText(u.Spent, u.Budget.Limit), limitedText(u.Reserved, u.Budget.Limit), resets)
		return nil
	}
	return show, t.flush
}

// limitedText returns the fields of an amount that the limit has.
func limitedText(a, limit budget.Amount) string {
	var parts []string
	if limit.NanoUSD > 0 {
		parts = append(parts, money.Nano(a.NanoUSD).String()+" USD")
	}
	if limit.Tokens > 0 {
		parts = append(parts, counted(int(a.Tokens), "token"))
	}
	return strings.Join(parts, ", ")
}
