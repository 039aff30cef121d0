package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
	"github.com/turnpike-gateway/turnpike/item"
)

// databaseFile is the name of the store in the data directory.
const databaseFile = "turnpike.db"

// readStore opens the store of a gateway that may be running, for reading.
type readStore struct{ file, data, org string }

func (s *readStore) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVarP(&s.file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	cmd.PersistentFlags().StringVar(&s.data, "data", "", "data `DIRECTORY` (default: data of the configuration)")
	cmd.PersistentFlags().StringVar(&s.org, "org", config.DefaultOrg, "`ID` of the org")
}

// open returns the store; close it.
func (s *readStore) open(ctx context.Context, p Process) (*sqlite.Reader, error) {
	data := s.data
	if data == "" {
		c, err := s.config(p)
		if err != nil {
			return nil, err
		}
		data = c.Data
	}
	store, err := sqlite.OpenReader(ctx, filepath.Join(data, databaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no gateway has kept anything in %s: name its data directory with --data, or its configuration with --config", data)
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
	var limit int
	var before string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List an org's runs, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			runs, err := store.Runs(cmd.Context(), from.org, before, limit)
			if err != nil {
				return err
			}
			return printRuns(cmd.OutOrStdout(), runs)
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number of runs")
	cmd.Flags().StringVar(&before, "before", "", "only runs older than the run with this `ID`")
	return cmd
}

func printRuns(out io.Writer, runs []run.Summary) error {
	t := newTable(out, "RUN", "STARTED (UTC)", "TOOK", "BY", "MODEL", "ROUNDS", "CALLS", "TOKENS", "STATE")
	for _, r := range runs {
		took, state := "", string(r.Status)
		if r.FinishedAt > 0 {
			took = (time.Duration(r.FinishedAt-r.CreatedAt) * time.Millisecond).String()
		}
		if r.Reason != "" {
			state = string(r.Reason)
		}
		t.row(r.RunID, time.UnixMilli(r.CreatedAt).UTC().Format(time.DateTime), took, r.Principal, r.Model, r.Rounds, r.Calls, r.Tokens, state)
	}
	return t.flush()
}

func showRun(p Process, from *readStore) *cobra.Command {
	var whole bool
	cmd := &cobra.Command{
		Use:   "show ID|UUID",
		Short: "Show what happened in a run",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			runID := audit.FindRun(args[0])
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
			rows, err := store.AuditRows(cmd.Context(), from.org, audit.Query{RunID: runID, Kind: audit.KindExhausted})
			if err != nil {
				return err
			}
			tellStory(cmd.OutOrStdout(), story, bad, rows, whole)
			return nil
		},
	}
	cmd.Flags().BoolVar(&whole, "full", false, "do not shorten texts")
	return cmd
}

// tellStory prints what is known of a run. Bad says what of its journal cannot be
// decoded; nil = nothing is known to be damaged.
func tellStory(out io.Writer, story *run.Story, bad *run.Unreadable, audited []audit.Row, whole bool) {
	s := story.Summary
	fmt.Fprintf(out, "%s   %s UTC   %s\n\n", plain(s.RunID), time.UnixMilli(s.CreatedAt).UTC().Format(time.DateTime), plain(string(s.Status)))
	t := &teller{out: out, whole: whole, items: func(ref string) []item.Item { return decodeItems(story.Rows[ref]) }}
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
