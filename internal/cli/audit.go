package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

func auditCommand(p Process) *cobra.Command {
	var from readStore
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "List, export and verify the audit log",
		Args:  cobra.NoArgs,
	}
	from.flags(cmd)
	for _, chosen := range []*cobra.Command{listAudit(p, &from), exportAudit(p, &from), verifyAudit(p, &from)} {
		operatorFlag(chosen, &from)
		cmd.AddCommand(chosen)
	}
	cmd.AddCommand(auditKey(p, &from))
	return cmd
}

// operatorFlag adds the flag that chooses the operator's own chain. --org and
// --operator together are an error.
func operatorFlag(cmd *cobra.Command, from *readStore) {
	cmd.Flags().BoolFunc("operator", "use the operator's audit log instead of an org's", func(text string) error {
		set, err := strconv.ParseBool(text)
		if err == nil && set {
			from.org = org.Operator
		}
		return err
	})
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("org") && cmd.Flags().Changed("operator") {
			return errors.New("--org and --operator cannot be used together")
		}
		return nil
	}
}

// auditFlags are those that choose rows.
type auditFlags struct{ run, request, key, kind, from, to string }

func (f *auditFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.run, "run", "", "only rows of the run with this `ID` or UUID")
	cmd.Flags().StringVar(&f.request, "request", "", "only rows of the request with this `ID` or UUID")
	cmd.Flags().StringVar(&f.key, "key-id", "", "only rows of the key with this `ID`")
	cmd.Flags().StringVar(&f.kind, "kind", "", "only rows of this `KIND`, for example "+string(audit.KindToolCall))
	cmd.Flags().StringVar(&f.from, "from", "", "only rows at or after this `TIME`, for example 2026-01-31T12:00:00Z")
	cmd.Flags().StringVar(&f.to, "to", "", "only rows before this `TIME`")
}

func (f *auditFlags) query() (q audit.Query, err error) {
	q = audit.Query{RunID: audit.StoredRunID(f.run), RequestIDs: audit.StoredRequestIDs(f.request), Principal: f.key}
	if q.Kind, err = audit.ParseKind(f.kind); err != nil {
		return q, fmt.Errorf("--kind: %w", err)
	}
	for _, t := range []struct {
		flag, text string
		to         *int64
	}{{"--from", f.from, &q.From}, {"--to", f.to, &q.To}} {
		if t.text == "" {
			continue
		}
		at, err := time.Parse(time.RFC3339, t.text)
		if err != nil {
			return q, fmt.Errorf("%s: %q is not a valid time; use RFC 3339, for example 2026-01-31T12:00:00Z", t.flag, t.text)
		}
		*t.to = at.UnixMilli()
	}
	return q, nil
}

func listAudit(p Process, from *readStore) *cobra.Command {
	var choose auditFlags
	var limit int
	var after, before int64
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List an org's audit rows, latest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := choose.query()
			if err != nil {
				return err
			}
			if limit < 1 || limit > audit.MaxRows {
				return fmt.Errorf("--limit: %d is out of range (1..%d)", limit, audit.MaxRows)
			}
			q.After, q.Before, q.Limit, q.Latest = after, before, limit, true
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			orgID, err := from.oneOrg(cmd.Context(), p, store)
			if err != nil {
				return err
			}
			rows, err := store.AuditRows(cmd.Context(), orgID, q)
			if err != nil {
				return err
			}
			return printAudit(cmd.OutOrStdout(), rows)
		},
	}
	choose.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("maximum number of rows (1..%d)", audit.MaxRows))
	cmd.Flags().Int64Var(&before, "before", 0, "only rows before the row with this `NUMBER`")
	cmd.Flags().Int64Var(&after, "after", 0, "only rows after the row with this `NUMBER`")
	return cmd
}

func printAudit(out io.Writer, rows []audit.Row) error {
	t := newTable(out, "NUMBER", "TIME (UTC)", "KEY", "REQUEST", "KIND", "WHAT")
	for _, r := range rows {
		s := r.View()
		t.row(s.Number, time.UnixMilli(r.At).UTC().Format("2006-01-02 15:04:05.000"),
			s.Principal, s.RequestID, s.Kind.Short(), string(s.Body))
	}
	return t.flush()
}

func exportAudit(p Process, from *readStore) *cobra.Command {
	var choose auditFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Export an org's audit rows as JSON lines with a checksum",
		Long: `Write an org's audit rows to standard output, one JSON object per line. The last
line has the number of rows and the SHA-256 of all bytes before it. An export
without that line is incomplete.`,
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
			orgID, err := from.oneOrg(cmd.Context(), p, store)
			if err != nil {
				return err
			}
			_, err = audit.Export(cmd.Context(), cmd.OutOrStdout(), orgID, store, q)
			return err
		},
	}
	choose.add(cmd)
	return cmd
}

func auditKey(p Process, from *readStore) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key that verifies checkpoints",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from.org != "" {
				return errors.New("--org: one key signs the checkpoints of all orgs; leave out --org")
			}
			c, err := from.config(p)
			if err != nil {
				return err
			}
			if from.data != "" {
				c.Database = secret.Text{}
			}
			key, err := signingKey(cmd.Context(), p, c, from.directory(c))
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), audit.EncodePublicKey(key))
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
	if c.UsesPostgres() {
		return installedAuditKey(ctx, p, c)
	}
	key, err = audit.LoadKey(filepath.Join(data, app.AuditKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, app.NoData(data)
	}
	return key, err
}

func verifyAudit(p Process, from *readStore) *cobra.Command {
	var public, checkpoints string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Verify that no audit row was changed, added, moved or removed",
		Long: `Verify the audit log of all orgs, or of the org that --org names, and print every
row that does not match its hash chain. The gateway may be running. Exit status:

  0  all rows match
  1  a row does not match, or the audit log cannot be read
  3  no checkpoint signs the rows of an org, so they cannot be verified

The gateway writes a checkpoint every minute while there are new rows. Checkpoints
are read from the store and from the checkpoint file. The removal of rows after
the last checkpoint cannot be detected.`,
		Example: `  turnpike audit verify
  turnpike audit verify --public-key "$(cat elsewhere/audit.pub)" --checkpoints elsewhere/audit.checkpoints`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return verify(cmd, p, from, public, checkpoints)
		},
	}
	cmd.Flags().StringVar(&public, "public-key", "", "public `KEY`, as printed by \"turnpike audit key\" (default: the key in the data directory)")
	cmd.Flags().StringVar(&checkpoints, "checkpoints", "", "checkpoint `FILE` (default: audit.checkpoints of the configuration)")
	return cmd
}

func verify(cmd *cobra.Command, p Process, from *readStore, public, checkpoints string) error {
	c, err := from.config(p)
	if err != nil {
		return err
	}
	if from.data != "" { // whatever the configuration says of a database
		c.Data, c.Database = from.data, secret.Text{}
	}
	key, err := verifyingKey(cmd.Context(), p, c, public)
	if err != nil {
		return err
	}
	if checkpoints == "" {
		checkpoints = app.CheckpointsPath(c)
	}
	witness, malformed, err := audit.Witness{Path: checkpoints}.Read()
	if err != nil {
		return err
	}
	store, err := from.open(cmd.Context(), p)
	if err != nil {
		return err
	}
	defer store.Close()
	orgs, err := auditedOrgs(cmd.Context(), store, witness)
	if err != nil {
		return err
	}
	if from.org != "" {
		if !slices.Contains(orgs, from.org) { // an org without rows is verified too
			if _, err := from.oneOrg(cmd.Context(), p, store); err != nil {
				return err
			}
		}
		orgs = []string{from.org}
	}
	out := cmd.OutOrStdout()
	printMalformed(out, checkpoints, malformed)
	if _, err := os.Stat(checkpoints); checkpoints == "" {
		fmt.Fprintln(out, "no checkpoint file is configured: only the checkpoints in the database are used")
	} else if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "%s does not exist: only the checkpoints in the database are used\n", plain(checkpoints))
	}
	found, unsigned := 0, 0
	for _, id := range orgs {
		report, err := audit.Verify(cmd.Context(), id, store, key, witness)
		if err != nil {
			return err
		}
		printReport(out, report)
		found += len(report.Findings)
		if report.Unsigned() {
			unsigned++
		}
	}
	switch {
	case found > 0:
		return &exitError{status: 1}
	case unsigned > 0:
		return &exitError{status: 3}
	}
	return nil
}

// printMalformed prints the lines of the checkpoint file that are not checkpoints.
func printMalformed(out io.Writer, path string, malformed []audit.MalformedLine) {
	for i, s := range malformed {
		if i == audit.MaxFindings {
			fmt.Fprintf(out, "%s: %s in total are not checkpoints\n", plain(path), counted(len(malformed), "line"))
			return
		}
		fmt.Fprintf(out, "%s, line %d: not a checkpoint: %s\n", plain(path), s.Line, plain(s.Reason))
	}
}

func verifyingKey(ctx context.Context, p Process, c *config.Config, public string) (ed25519.PublicKey, error) {
	if public != "" {
		return audit.ParsePublicKey(public)
	}
	key, err := signingKey(ctx, p, c, c.Data)
	if err != nil {
		return nil, err
	}
	return key.Public().(ed25519.PublicKey), nil
}

// auditedOrgs returns the orgs that have rows, or had them when a checkpoint was
// made.
func auditedOrgs(ctx context.Context, store *database.Reader, witness []audit.Checkpoint) ([]string, error) {
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
	for _, l := range r.Losses {
		fmt.Fprintf(out, "org %s: rows %d to %d were lost with the database; the operator accepted the loss on %s UTC\n",
			plain(r.Org), l.Stored+1, max(l.Signed, l.Stored+1), time.UnixMilli(l.At).UTC().Format(time.DateTime))
	}
	for _, f := range r.Findings {
		fmt.Fprintln(out, plain(f.String()))
	}
	if len(r.Findings) == audit.MaxFindings {
		fmt.Fprintf(out, "org %s: more findings are not shown\n", plain(r.Org))
	}
	state := "ok"
	switch {
	case len(r.Findings) > 0:
		state = "FAILED"
	case r.Unsigned():
		state = "NOT VERIFIED: no checkpoint signs these rows, so replaced or removed rows cannot be detected"
	}
	fmt.Fprintf(out, "org %s: %s, rows %d to %d, %s, signed up to row %d: %s\n", plain(r.Org), counted(int(r.Rows), "row"), r.First, r.Last,
		counted(r.Checkpoints, "checkpoint"), r.SignedTo, state)
}
