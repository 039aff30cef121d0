package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/runs"
)

// readStore opens the store of a gateway that may be running, for reading.
type readStore struct {
	file, data string
	org        string // as --org names it, or org.Operator; "" = the only org, or for an id any
}

func (s *readStore) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&s.file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	data, where := "data `DIRECTORY`", "the only org; an id is looked up in all orgs"
	if cmd.PersistentFlags().Lookup("url") != nil {
		data, where = data+"; without --url or --config, no gateway is asked", "of a running gateway, the org of TURNPIKE_KEY; of a data directory, "+where
	}
	cmd.PersistentFlags().StringVar(&s.data, "data", "", data+" (default: data of the configuration)")
	cmd.PersistentFlags().StringVar(&s.org, "org", "", "`ID` of the org (default: "+where+")")
}

// open returns the store; close it.
func (s *readStore) open(ctx context.Context, p Process) (*database.Reader, error) {
	c, err := s.located(p)
	if err != nil {
		return nil, err
	}
	data := s.directory(c)
	store, err := openStored(ctx, c, secret.NewResolver(p.Env), data)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.UsesPostgres():
		return nil, fmt.Errorf("no gateway has stored anything in the database yet: %w", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, app.NoData(data)
	}
	return store, err
}

// located returns the configuration, which is empty if the data directory is given.
func (s *readStore) located(p Process) (*config.Config, error) {
	if s.data != "" {
		return new(config.Config), nil
	}
	return s.config(p)
}

func (s *readStore) config(p Process) (*config.Config, error) {
	if file := configFile(s.file); file != "" {
		return config.Load(file, p.Env)
	}
	c, _, err := config.Default(p.Env)
	return c, err
}

func runsCommand(p Process) *cobra.Command {
	var from readStore
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, show, follow and cancel runs, and raise their limits",
		Args:  cobra.NoArgs,
	}
	for _, c := range []*cobra.Command{listRuns(p, &from), showRun(p, &from), followRun(p, &from), cancelRun(p, &from), raiseRun(p, &from)} {
		from.flags(c)
		cmd.AddCommand(c)
	}
	return cmd
}

func cancelRun(p Process, from *readStore) *cobra.Command {
	m := remote{own: from}
	cmd := &cobra.Command{
		Use:   "cancel ID|UUID",
		Short: "Cancel a run",
		Long: `Cancel a run over the API of a running gateway, at --url or the address in listen
of the configuration. Calls in progress are aborted and recorded as unknown. Set
TURNPIKE_KEY to a key with the role owner or admin, or to the key that started the
run.

If no gateway is running, the command records the request in the data directory.
The run ends when the gateway starts. This needs no key.`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := m.call(cmd.Context(), http.MethodPost, "/v1/runs/"+url.PathEscape(args[0])+"/cancel", nil, nil)
			if m.useStore(err) {
				return cancelStored(cmd, p, from, args[0], err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is being cancelled\n", plain(args[0]))
			return nil
		},
	}
	m.flags(cmd, p)
	return cmd
}

// cancelStored records in the store that a run is to end, if no gateway has it open. Why
// is the error of the gateway's API.
func cancelStored(cmd *cobra.Command, p Process, from *readStore, name string, why error) error {
	ctx := cmd.Context()
	store, err := from.openUnused(ctx, p, why)
	if err != nil {
		return err
	}
	defer store.Close()
	runner := run.New(run.Options{Journal: store, Archive: store, Leases: store, Build: app.Version()})
	by := org.Author{Principal: org.CommandLine, At: time.Now().UnixMilli()}
	if _, err := from.orgWith(ctx, p, store, "run "+name, func(orgID string) error {
		return runner.Cancel(ctx, orgID, audit.StoredRunID(name), by)
	}); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "no gateway is running: %s ends when the gateway starts\n", plain(name))
	return nil
}

// openUnused opens the store for writing, if no gateway has it open. Why is the error of the
// gateway's API. Close the store.
func (s *readStore) openUnused(ctx context.Context, p Process, why error) (*database.Store, error) {
	c, err := s.located(p)
	if err != nil {
		return nil, err
	}
	if c.UsesPostgres() {
		return nil, fmt.Errorf("%w; what is stored is in PostgreSQL, so a running gateway must do it: start one, or name its address with "+
			"--url", why)
	}
	path := filepath.Join(s.directory(c), app.DatabaseFile)
	reader, err := database.OpenReader(ctx, path) // before the store is opened for writing: it must exist, and have this schema
	switch {
	case errors.Is(err, fs.ErrNotExist) && errors.Is(why, errDataNamed):
		return nil, fmt.Errorf("there is no Turnpike data in %s", filepath.Dir(path))
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w; there is no Turnpike data in %s either: name the data directory with --data, or a configuration with --config", why, filepath.Dir(path))
	case err != nil:
		return nil, err
	}
	if err := reader.Close(); err != nil {
		return nil, err
	}
	store, err := database.Open(ctx, database.Options{Path: path})
	switch {
	case errors.Is(err, database.ErrLocked) && errors.Is(why, errNoKey):
		return nil, why
	case errors.Is(err, database.ErrLocked):
		return nil, fmt.Errorf("%w; another process uses %s: if it is a gateway, name its address with --url", why, filepath.Dir(path))
	}
	return store, err
}

func listRuns(p Process, from *readStore) *cobra.Command {
	var q journal.Query
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List an org's runs, newest first",
		Long: `List an org's runs, newest first. Filters apply before --limit. A state is what
the STATE column shows:

  ` + wrapWords(journal.States(), 78) + `

With --json, each run is one JSON object per line.`,
		Example: `  turnpike runs list --since 2h --state model_error,tool_abort
  turnpike runs list --since 2026-01-31T12:00:00Z --key dev --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkStates(q.States); err != nil {
				return err
			}
			if q.Limit < 1 {
				return errors.New("--limit must be 1 or more")
			}
			if since != "" {
				at, err := parseSince(since, time.Now())
				if err != nil {
					return fmt.Errorf("--since: %w", err)
				}
				q.Since = at.UnixMilli()
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
			found, err := store.Runs(cmd.Context(), orgID, q)
			if errors.Is(err, org.ErrNotFound) {
				return fmt.Errorf("--before: the org %s has no run %s", orgID, q.Before)
			}
			if err != nil {
				return err
			}
			if !asJSON {
				return printRuns(cmd.OutOrStdout(), found)
			}
			for _, r := range found {
				if err := printJSON(cmd.OutOrStdout(), runs.NewObject(r)); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&q.Limit, "limit", 20, "maximum number of runs")
	cmd.Flags().StringVar(&q.Before, "before", "", "only runs older than the run with this `ID`")
	cmd.Flags().StringVar(&since, "since", "", "only runs that started at or after this `TIME`: a duration before now (90m, 2h, 7d) or 2026-01-31T12:00:00Z")
	cmd.Flags().StringSliceVar(&q.States, "state", nil, "only runs in this `STATE`; repeat the flag or separate states with commas")
	cmd.Flags().StringVar(&q.Principal, "key", "", "only runs of the key with this `ID`, as in the BY column")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table")
	return cmd
}

// checkStates refuses a state that no run can have.
func checkStates(states []string) error {
	all := journal.States()
	for _, s := range states {
		if !slices.Contains(all, s) {
			return fmt.Errorf("--state: unknown state %q; the states are %s", s, strings.Join(all, ", "))
		}
	}
	return nil
}

// parseSince reads a time, or a duration before now. 7d is seven times 24 hours.
func parseSince(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	ago, err := time.ParseDuration(text)
	if days, isDays := strings.CutSuffix(text, "d"); isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16)
		ago = time.Duration(n) * 24 * time.Hour //nolint:gosec // 16 bits
	}
	if err != nil || ago < 0 {
		return time.Time{}, fmt.Errorf("%q is not a valid time; use a duration before now such as 90m, 2h or 7d, or a time such as 2026-01-31T12:00:00Z", text)
	}
	return now.Add(-ago), nil
}

func printRuns(out io.Writer, found []journal.Summary) error {
	t := newTable(out, "RUN", "STARTED (UTC)", "TOOK", "BY", "MODEL", "ROUNDS", "CALLS", "TOKENS", "STATE")
	for _, r := range found {
		took := ""
		if r.FinishedAt > 0 {
			took = (time.Duration(r.FinishedAt-r.CreatedAt) * time.Millisecond).String()
		}
		t.row(r.RunID, time.UnixMilli(r.CreatedAt).UTC().Format(time.DateTime), took, r.Principal, r.Model, r.Rounds, r.Calls, r.Tokens, r.State())
	}
	return t.flush()
}

func showRun(p Process, from *readStore) *cobra.Command {
	var whole, asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID|UUID",
		Short: "Show what happened in a run, and why it ended",
		Long: `Show what happened in a run, step by step, and why it ended: the provider's error
and answer, the limit, the refused address, or who cancelled it.

With --json, the run is one JSON object, with its journal.`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			runID := audit.StoredRunID(args[0])
			var story *journal.Story
			orgID, err := from.orgWith(cmd.Context(), p, store, "run "+args[0], func(orgID string) (err error) {
				story, err = store.Load(cmd.Context(), orgID, runID)
				return err
			})
			var bad *journal.Unreadable
			if errors.As(err, &bad) {
				story = bad.Story // what can be read
			} else if err != nil {
				return err
			}
			rows, err := store.AuditRows(cmd.Context(), orgID, audit.Query{RunID: runID, Kind: audit.KindBudgetExhausted})
			if err != nil {
				return err
			}
			told, err := store.HookMessages(cmd.Context(), orgID, runID)
			if err != nil {
				return err
			}
			if asJSON {
				out := newStoryObject(story, bad, rows)
				out.OnRunComplete = runs.NewToldHooks(told)
				return printJSON(cmd.OutOrStdout(), out)
			}
			printStory(cmd.OutOrStdout(), story, bad, rows, told, whole)
			return nil
		},
	}
	cmd.Flags().BoolVar(&whole, "full", false, "do not shorten texts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// storyObject is a run as "runs show --json" prints it: as the API shows it to an owner,
// with the audit rows and what is stored.
type storyObject struct {
	runs.Detail
	Audit   []audit.RowView            `json:"audit,omitempty"`
	Journal []factObject               `json:"journal"`
	Rows    map[string]json.RawMessage `json:"rows"`
}

// factObject is an entry of the journal, as it is stored.
type factObject struct {
	Seq  int64     `json:"seq"`
	At   string    `json:"at"`
	Kind loop.Kind `json:"kind"`
	Body loop.Body `json:"body"`
}

func newStoryObject(story *journal.Story, bad *journal.Unreadable, audited []audit.Row) storyObject {
	detail := eventlog.DetailOf(story)
	detail.Unreadable = bad
	out := storyObject{Detail: runs.NewDetail(detail, true), Journal: []factObject{}, Rows: map[string]json.RawMessage{}}
	for ref, row := range story.Rows {
		if !json.Valid(row) { // a damaged row is shown as text
			row, _ = json.Marshal(string(row))
		}
		out.Rows[ref] = row
	}
	for _, f := range story.Facts {
		out.Journal = append(out.Journal, factObject{f.Seq, surface.Timestamp(f.At), f.Body.Kind(), f.Body})
	}
	for _, row := range audited {
		out.Audit = append(out.Audit, row.View())
	}
	return out
}

// printStory prints what is known of a run. Bad says what of its journal cannot be
// decoded; nil = nothing is known to be damaged.
func printStory(out io.Writer, story *journal.Story, bad *journal.Unreadable, audited []audit.Row, told []journal.HookMessage, whole bool) {
	s := story.Summary
	fmt.Fprintf(out, "%s   %s UTC   %s\n\n", plain(s.RunID), time.UnixMilli(s.CreatedAt).UTC().Format(time.DateTime), plain(string(s.Status)))
	p := newFactPrinter(out, whole, story)
	for _, f := range story.Facts {
		p.print(f)
	}
	if bad != nil {
		p.line("unreadable", "", "%v", bad)
	}
	if a := s.Aside; s.Status == journal.IsAside {
		p.line("set aside", "", "%s UTC by build %s: %s", time.UnixMilli(a.At).UTC().Format(time.DateTime), a.Build, a.Reason)
		p.line("", "", "Cancel the run, or start the build that has written it.")
	}
	for _, m := range told {
		p.line("hook", "", "%s at OnRunComplete: %s", m.Hook, m.Outcome)
	}
	for _, row := range audited {
		p.line("audit", fmt.Sprint(row.Number), "%s %s", row.Kind, row.Body)
	}
	note := ""
	if s.Status == journal.Running {
		note = fmt.Sprintf("; running for %s", max(0, time.Since(time.UnixMilli(s.CreatedAt))).Round(time.Millisecond))
	}
	p.totals(s.Rounds, s.Calls, s.Tokens, eventlog.DetailOf(story).Cost, note)
}
