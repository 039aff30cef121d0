package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
)

// Names of files in the data directory, unless the configuration names others.
const (
	auditKeyFile    = "audit.key"
	checkpointsFile = "audit.checkpoints"
)

// newKeeper returns what signs the ends of the audit's chains.
func (a *App) newKeeper() (*audit.Keeper, error) {
	key := a.keys.Audit
	if key == nil {
		var err error
		if key, err = audit.FileKey(filepath.Join(a.config.Data, auditKeyFile)); err != nil {
			return nil, fmt.Errorf("the audit's key: %w", err)
		}
	}
	return audit.NewKeeper(audit.KeeperOptions{
		Log: a.store, Key: key, Witness: audit.Witness{Path: checkpointsPath(a.config)}.Add,
		Keep: time.Duration(a.config.Audit.RetentionDays) * 24 * time.Hour, Logger: a.log,
	}), nil
}

// stopKeeper signs what was recorded last. A store in trouble is not waited for.
func (a *App) stopKeeper() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return a.keeper.Stop(ctx)
}

func checkpointsPath(c *config.Config) string {
	if c.Audit.Checkpoints != "" {
		return c.Audit.Checkpoints
	}
	return filepath.Join(c.Data, checkpointsFile)
}

func auditCommand(p Process) *cobra.Command {
	var from readStore
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Look at the audit, take it along, and check that nobody changed it",
		Args:  cobra.NoArgs,
	}
	from.flags(cmd)
	cmd.AddCommand(listAudit(p, &from), exportAudit(p, &from), verifyAudit(p, &from), auditKey(p, &from))
	return cmd
}

// auditFlags are those that choose rows.
type auditFlags struct{ run, request, key, kind, from, to string }

func (f *auditFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.run, "run", "", "only rows of the run with this `ID`")
	cmd.Flags().StringVar(&f.request, "request", "", "only rows of the request with this `ID`")
	cmd.Flags().StringVar(&f.key, "key-id", "", "only rows of the key with this `ID`")
	cmd.Flags().StringVar(&f.kind, "kind", "", "only rows of this `KIND`, such as "+string(audit.KindToolCall))
	cmd.Flags().StringVar(&f.from, "from", "", "only rows since this `TIME`, such as 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&f.to, "to", "", "only rows before this `TIME`")
}

func (f *auditFlags) query() (q audit.Query, err error) {
	q = audit.Query{RunID: f.run, RequestID: f.request, Principal: f.key, Kind: audit.Kind(f.kind)}
	for _, t := range []struct {
		text string
		to   *int64
	}{{f.from, &q.From}, {f.to, &q.To}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			return q, fmt.Errorf("%q is no time such as 2026-01-31T12:00:00Z", t.text)
		}
		*t.to = at.UnixMilli()
	}
	return q, nil
}

func listAudit(p Process, from *readStore) *cobra.Command {
	var choose auditFlags
	var limit int
	var after int64
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List an org's rows, the first ones first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := choose.query()
			if err != nil {
				return err
			}
			q.After, q.Limit = after, limit
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			rows, err := store.AuditRows(cmd.Context(), from.org, q)
			if err != nil {
				return err
			}
			return printAudit(cmd.OutOrStdout(), rows)
		},
	}
	choose.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many, and at most 1000")
	cmd.Flags().Int64Var(&after, "after", 0, "only rows behind the one with this `NUMBER`")
	return cmd
}

func printAudit(out io.Writer, rows []audit.Row) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NUMBER\tTIME (UTC)\tKEY\tREQUEST\tKIND\tWHAT")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", r.Number, time.UnixMilli(r.At).UTC().Format("2006-01-02 15:04:05.000"),
			r.Principal, r.RequestID, strings.TrimPrefix(string(r.Kind), "audit_log."), printable(string(r.Body)))
	}
	return w.Flush()
}

func exportAudit(p Process, from *readStore) *cobra.Command {
	var choose auditFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write an org's rows as lines of JSON, with a checksum at the end",
		Long: `Write an org's rows to standard output, one JSON object a line. The last line
holds the number of rows and the SHA-256 of all bytes before it; an export
without it is not whole.`,
		Example: "  turnpike audit export --from 2026-01-01T00:00:00Z > audit.ndjson",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := choose.query()
			if err != nil {
				return err
			}
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			_, err = audit.Export(cmd.Context(), cmd.OutOrStdout(), from.org, store, q)
			return err
		},
	}
	choose.add(cmd)
	return cmd
}

func auditKey(p Process, from *readStore) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key that checkpoints are checked with",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := from.config(p)
			if err != nil {
				return err
			}
			key, err := signingKey(cmd.Context(), p, c, from.directory(c))
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), audit.Public(key))
			return nil
		},
	}
}

// signingKey returns the key of a gateway that may be running.
func signingKey(ctx context.Context, p Process, c *config.Config, data string) (ed25519.PrivateKey, error) {
	key, err := c.AuditKey(ctx, secret.NewResolver(p.Env))
	if key != nil || err != nil {
		return key, err
	}
	key, err = audit.ReadFileKey(filepath.Join(data, auditKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no gateway has signed anything in %s: name its data directory with --data, or its configuration with --config", data)
	}
	return key, err
}

func verifyAudit(p Process, from *readStore) *cobra.Command {
	var public, checkpoints string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no row was changed, left out, put in, moved or cut off",
		Long: `Read the whole audit, of one org or of all, and name every row that is not as it
was recorded. The exit status is 1 if there is one. The gateway may be running.

Checkpoints are read from the store and from the file in which they are kept a
second time. What was recorded after the last checkpoint, which is at most a
minute old while the gateway runs, could be cut off without a trace.`,
		Example: `  turnpike audit verify
  turnpike audit verify --public-key "$(cat elsewhere/audit.pub)" --checkpoints elsewhere/audit.checkpoints`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			org := from.org
			if !cmd.Flags().Changed("org") {
				org = ""
			}
			return verify(cmd, p, from, org, public, checkpoints)
		},
	}
	cmd.Flags().StringVar(&public, "public-key", "", "public `KEY` to check with, as \"turnpike audit key\" prints it; the data directory's unless given")
	cmd.Flags().StringVar(&checkpoints, "checkpoints", "", "`FILE` of checkpoints; the configuration's unless given")
	return cmd
}

func verify(cmd *cobra.Command, p Process, from *readStore, org, public, checkpoints string) error {
	c, err := from.config(p)
	if err != nil {
		return err
	}
	if from.data != "" {
		c.Data = from.data
	}
	key, err := verifyingKey(cmd.Context(), p, c, public)
	if err != nil {
		return err
	}
	if checkpoints == "" {
		checkpoints = checkpointsPath(c)
	}
	witness, strange, err := audit.Witness{Path: checkpoints}.Read()
	if err != nil {
		return err
	}
	store, err := from.open(cmd.Context(), p)
	if err != nil {
		return err
	}
	defer store.Close()
	orgs := []string{org}
	if org == "" {
		if orgs, err = auditedOrgs(cmd.Context(), store, witness); err != nil {
			return err
		}
	}
	out := cmd.OutOrStdout()
	if strange > 0 {
		fmt.Fprintf(out, "%s: %s that are no checkpoints\n", checkpoints, counted(strange, "line"))
	}
	if _, err := os.Stat(checkpoints); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "%s is not there: checkpoints are taken from the store alone\n", checkpoints)
	}
	found := 0
	for _, id := range orgs {
		report, err := audit.Verify(cmd.Context(), id, store, key, witness)
		if err != nil {
			return err
		}
		printReport(out, report)
		found += len(report.Findings)
	}
	if found > 0 {
		return &exitError{status: 1}
	}
	return nil
}

func verifyingKey(ctx context.Context, p Process, c *config.Config, public string) (ed25519.PublicKey, error) {
	if public != "" {
		return audit.ParsePublic(public)
	}
	key, err := signingKey(ctx, p, c, c.Data)
	if err != nil {
		return nil, err
	}
	return key.Public().(ed25519.PublicKey), nil
}

// auditedOrgs returns the orgs that have rows, or had them when a checkpoint was
// made.
func auditedOrgs(ctx context.Context, store *sqlite.Reader, witness []audit.Checkpoint) ([]string, error) {
	orgs, err := store.AuditOrgs(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, id := range orgs {
		known[id] = true
	}
	for _, c := range witness {
		if !known[c.Org] {
			known[c.Org] = true
			orgs = append(orgs, c.Org)
		}
	}
	return orgs, nil
}

func printReport(out io.Writer, r audit.Report) {
	for _, f := range r.Findings {
		fmt.Fprintln(out, f)
	}
	if len(r.Findings) == audit.MaxFindings {
		fmt.Fprintf(out, "org %s: and so on\n", r.Org)
	}
	state := "ok"
	if len(r.Findings) > 0 {
		state = "NOT as it was recorded"
	}
	fmt.Fprintf(out, "org %s: %s, rows %d to %d, %s, signed up to row %d: %s\n", r.Org, counted(int(r.Rows), "row"), r.First, r.Last,
		counted(r.Checkpoints, "checkpoint"), r.CheckedTo, state)
}
