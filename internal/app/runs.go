package app

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

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
)

// readStore opens the store of a gateway that may be running, for reading.
type readStore struct{ file, data, org string }

func (s *readStore) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&s.file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	cmd.PersistentFlags().StringVar(&s.data, "data", "", "data `DIRECTORY` (default: data of the configuration)")
	cmd.PersistentFlags().StringVar(&s.org, "org", config.DefaultOrg, "`ID` of the org")
}

// open returns the store; close it.
func (s *readStore) open(ctx context.Context, p Process) (*sqlite.Reader, error) {
	c := new(config.Config)
	if s.data == "" {
		var err error
		if c, err = s.config(p); err != nil {
			return nil, err
		}
	}
	data := s.directory(c)
	store, err := sqlite.OpenReader(ctx, filepath.Join(data, databaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noData(c, data)
	}
	return store, err
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
		Short: "List, show and cancel runs",
		Args:  cobra.NoArgs,
	}
	list, show := listRuns(p, &from), showRun(p, &from)
	from.flags(list)
	from.flags(show)
	cmd.AddCommand(list, show, cancelRun(p))
	return cmd
}

func cancelRun(p Process) *cobra.Command {
	var m remote
	cmd := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel a run that is in progress on a running gateway",
		Long: `Cancel a run over the management API of a running gateway. Calls in progress are
aborted and recorded as unknown. Set TURNPIKE_KEY to a key of the org with the
role owner or admin.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.call(cmd.Context(), http.MethodPost, "/api/runs/"+url.PathEscape(args[0])+"/cancel", nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is being cancelled\n", plain(args[0]))
			return nil
		},
	}
	m.flags(cmd, p)
	return cmd
}

func listRuns(p Process, from *readStore) *cobra.Command {
	var q run.Query
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List an org's runs, newest first",
		Long: `List an org's runs, newest first. Filters apply before --limit. A state is what
the STATE column shows:

  ` + wrapWords(run.States(), 78) + `

With --json, each run is one JSON object per line.`,
		Example: `  turnpike runs list --since 2h --state model_error,tool_abort
  turnpike runs list --since 2026-01-31T12:00:00Z --key dev --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkStates(q.States); err != nil {
				return err
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
			runs, err := store.Runs(cmd.Context(), from.org, q)
			if errors.Is(err, org.ErrNotFound) {
				return fmt.Errorf("--before: the org %s has no run %s", from.org, q.Before)
			}
			if err != nil {
				return err
			}
			if !asJSON {
				return printRuns(cmd.OutOrStdout(), runs)
			}
			for _, r := range runs {
				if err := printJSON(cmd.OutOrStdout(), newRunObject(r)); err != nil {
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
	all := run.States()
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

// runObject is a run as --json prints it.
type runObject struct {
	ID         string  `json:"id"`
	Org        string  `json:"org"`
	State      string  `json:"state"`
	Key        string  `json:"key"`
	Surface    string  `json:"surface"`
	Grade      string  `json:"grade"`
	Model      string  `json:"model"`
	Rounds     int     `json:"rounds"`
	ToolCalls  int     `json:"tool_calls"`
	Tokens     int64   `json:"tokens"`
	StartedAt  string  `json:"started_at"`
	FinishedAt *string `json:"finished_at"`
}

func newRunObject(s run.Summary) runObject {
	out := runObject{
		ID: s.RunID, Org: s.Org, State: s.State(), Key: s.Principal, Surface: s.Surface, Grade: string(s.Grade), Model: s.Model,
		Rounds: s.Rounds, ToolCalls: s.Calls, Tokens: s.Tokens, StartedAt: timestamp(s.CreatedAt),
	}
	if s.FinishedAt > 0 {
		at := timestamp(s.FinishedAt)
		out.FinishedAt = &at
	}
	return out
}

// timestamp writes Unix milliseconds as RFC 3339 does, in UTC.
func timestamp(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

func printRuns(out io.Writer, runs []run.Summary) error {
	t := newTable(out, "RUN", "STARTED (UTC)", "TOOK", "BY", "MODEL", "ROUNDS", "CALLS", "TOKENS", "STATE")
	for _, r := range runs {
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
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			runID := audit.StoredRunID(args[0])
			story, err := store.Load(cmd.Context(), from.org, runID)
			if errors.Is(err, org.ErrNotFound) {
				return fmt.Errorf("the org %s has no run %s", from.org, args[0])
			}
			var bad *run.Unreadable
			if errors.As(err, &bad) {
				story = bad.Story // what can be read
			} else if err != nil {
				return err
			}
			rows, err := store.AuditRows(cmd.Context(), from.org, audit.Query{RunID: runID, Kind: audit.KindBudgetExhausted})
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), newStoryObject(story, bad, rows))
			}
			tellStory(cmd.OutOrStdout(), story, bad, rows, whole)
			return nil
		},
	}
	cmd.Flags().BoolVar(&whole, "full", false, "do not shorten texts")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// storyObject is a run as "runs show --json" prints it.
type storyObject struct {
	runObject
	Why           string                     `json:"why,omitempty"`
	ProviderError *providerError             `json:"provider_error,omitempty"` // of the last model call that failed
	Unreadable    string                     `json:"unreadable,omitempty"`
	Audit         []audit.RowView            `json:"audit,omitempty"`
	Journal       []factObject               `json:"journal"`
	Rows          map[string]json.RawMessage `json:"rows"`
}

type providerError struct {
	Message string `json:"message"`
	Cause   string `json:"cause,omitempty"`
	Answer  string `json:"answer,omitempty"`
}

// factObject is an entry of the journal, as it is stored.
type factObject struct {
	Seq  int64     `json:"seq"`
	At   string    `json:"at"`
	Kind loop.Kind `json:"kind"`
	Body loop.Body `json:"body"`
}

func newStoryObject(story *run.Story, bad *run.Unreadable, audited []audit.Row) storyObject {
	t := &teller{out: io.Discard, whole: true, story: story}
	out := storyObject{runObject: newRunObject(story.Summary), Journal: []factObject{}, Rows: map[string]json.RawMessage{}}
	for ref, row := range story.Rows {
		if !json.Valid(row) { // a damaged row is shown as text
			row, _ = json.Marshal(string(row))
		}
		out.Rows[ref] = row
	}
	for _, f := range story.Facts {
		t.tell(f)
		out.Journal = append(out.Journal, factObject{f.Seq, timestamp(f.At), f.Body.Kind(), f.Body})
	}
	out.Why = t.because
	if f := t.failed; f != nil {
		out.ProviderError = &providerError{f.Message, f.Cause, string(f.Body)}
	}
	if bad != nil {
		out.Unreadable = bad.Error()
	}
	for _, row := range audited {
		out.Audit = append(out.Audit, row.View())
	}
	return out
}

// tellStory prints what is known of a run. Bad says what of its journal cannot be
// decoded; nil = nothing is known to be damaged.
func tellStory(out io.Writer, story *run.Story, bad *run.Unreadable, audited []audit.Row, whole bool) {
	s := story.Summary
	fmt.Fprintf(out, "%s   %s UTC   %s\n\n", plain(s.RunID), time.UnixMilli(s.CreatedAt).UTC().Format(time.DateTime), plain(string(s.Status)))
	t := &teller{out: out, whole: whole, story: story}
	for _, f := range story.Facts {
		t.tell(f)
	}
	if bad != nil {
		t.line("unreadable", "", "%v", bad)
	}
	if a := s.Aside; s.Status == run.IsAside {
		t.line("set aside", "", "%s UTC by build %s: %s", time.UnixMilli(a.At).UTC().Format(time.DateTime), a.Build, a.Reason)
		t.line("", "", "Cancel the run, or start the build that has written it.")
	}
	for _, row := range audited {
		t.line("audit", fmt.Sprint(row.Number), "%s %s", row.Kind, row.Body)
	}
	fmt.Fprintf(out, "\n%s, %s, %s", counted(s.Rounds, "round"), counted(s.Calls, "tool call"), counted(int(s.Tokens), "token"))
	if s.Status == run.Running {
		fmt.Fprintf(out, "; running for %s", max(0, time.Since(time.UnixMilli(s.CreatedAt))).Round(time.Millisecond))
	}
	fmt.Fprintln(out)
}
