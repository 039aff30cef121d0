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
	"text/tabwriter"
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
	cmd.PersistentFlags().StringVarP(&s.file, "config", "c", "", "configuration `FILE` that names the data directory")
	cmd.PersistentFlags().StringVar(&s.data, "data", "", "data `DIRECTORY`; the configuration's unless given")
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
	if s.file != "" {
		return config.Load(s.file, p.Env)
	}
	c, _, err := config.Default(p.Env)
	return c, err
}

func runsCommand(p Process) *cobra.Command {
	var from readStore
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "Look at runs, also while the gateway serves; end one",
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
		Short: "End a run that is under way on a running gateway",
		Long: `End a run over the management API of a running gateway: what it waits for is cut
off, and calls whose answer did not come are recorded as unknown. The variable
TURNPIKE_KEY holds a key of the org with the role owner or admin.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.call(cmd.Context(), http.MethodPost, "/api/runs/"+url.PathEscape(args[0])+"/cancel", nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is being cancelled\n", args[0])
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
		Short: "List an org's runs, the latest first",
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
	cmd.Flags().IntVar(&limit, "limit", 20, "at most this many")
	cmd.Flags().StringVar(&before, "before", "", "only runs before the one with this `ID`")
	return cmd
}

func printRuns(out io.Writer, runs []run.Summary) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSTARTED (UTC)\tTOOK\tBY\tMODEL\tROUNDS\tCALLS\tTOKENS\tSTATE")
	for _, r := range runs {
		took, state := "", string(r.Status)
		if r.FinishedAt > 0 {
			took = (time.Duration(r.FinishedAt-r.CreatedAt) * time.Millisecond).String()
		}
		if r.Reason != "" {
			state = string(r.Reason)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", r.RunID, time.UnixMilli(r.CreatedAt).UTC().Format(time.DateTime),
			took, r.Principal, r.Model, r.Rounds, r.Calls, r.Tokens, state)
	}
	return w.Flush()
}

func showRun(p Process, from *readStore) *cobra.Command {
	var whole bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Tell a run's journal as a story",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			story, err := store.Load(cmd.Context(), from.org, args[0])
			if errors.Is(err, org.ErrNotFound) {
				return fmt.Errorf("the org %s has no run %s", from.org, args[0])
			}
			if err != nil {
				return err
			}
			rows, err := store.AuditRows(cmd.Context(), from.org, audit.Query{RunID: args[0], Kind: audit.KindExhausted})
			if err != nil {
				return err
			}
			tellStory(cmd.OutOrStdout(), story, rows, whole)
			return nil
		},
	}
	cmd.Flags().BoolVar(&whole, "full", false, "texts in full")
	return cmd
}

func tellStory(out io.Writer, story *run.Story, audited []audit.Row, whole bool) {
	s := story.Summary
	fmt.Fprintf(out, "%s   %s UTC   %s\n\n", s.RunID, time.UnixMilli(s.CreatedAt).UTC().Format(time.DateTime), s.Status)
	t := &teller{out: out, whole: whole, items: func(ref string) []item.Item { return decodeItems(story.Rows[ref]) }}
	for _, f := range story.Facts {
		t.tell(f)
	}
	for _, row := range audited {
		t.line("audit", fmt.Sprint(row.Number), "%s %s", row.Kind, row.Body)
	}
	fmt.Fprintf(out, "\n%s, %s, %s", counted(s.Rounds, "round"), counted(s.Calls, "tool call"), counted(int(s.Tokens), "token"))
	if s.Status == run.Running {
		fmt.Fprintf(out, "; running for %s", time.Since(time.UnixMilli(s.CreatedAt)).Round(time.Millisecond))
	}
	fmt.Fprintln(out)
}
