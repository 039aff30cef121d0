package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/storecopy"
)

func storeCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Move the data of a gateway to another database",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(copyStoreCommand(p))
	return cmd
}

func copyStoreCommand(p Process) *cobra.Command {
	var file, from, to string
	cmd := &cobra.Command{
		Use:   "copy --from A --to B",
		Short: "Copy the data of a stopped gateway from SQLite to PostgreSQL, or back",
		Long: `Copy a whole installation from a data directory to a PostgreSQL database, or back:
orgs, keys, secrets, runs, sessions, conversations, budgets, messages, the audit
log, files of buckets of the kind disk or database, and the keys that sign and
seal. A and B are a data directory, and postgres://USER@HOST/DATABASE or a
reference to such a URL, as env:NAME.

The schema, the pooler, the master key and the key of the audit are those of the
configuration. The target must be empty; its schema is created.

No gateway may run on either side. The copy is complete when the command says so:
all rows and files of both sides were compared then, and the chains of the audit
verified. An interrupted copy goes on when the command is repeated, and no gateway
starts on it meanwhile. The source stays as it is: never start a gateway on it
again once one has served the copy.`,
		Example: `  turnpike store copy --config turnpike.yaml --from ./data --to env:DATABASE_URL
  turnpike store copy --config turnpike.yaml --from env:DATABASE_URL --to ./data`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" || to == "" {
				return errors.New("name the source with --from and the target with --to")
			}
			s := storeCopy{out: cmd.OutOrStdout()}
			if err := s.configure(cmd.Context(), p, file, from, to); err != nil {
				return err
			}
			log, _, flush := newLog(p.Stderr, config.Log{Level: "warn"})
			defer flush()
			if err := s.copy(cmd.Context(), log, p.Stderr); err != nil {
				return fmt.Errorf("store copy: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	cmd.Flags().StringVar(&from, "from", "", "data directory or URL to copy from")
	cmd.Flags().StringVar(&to, "to", "", "data directory or URL to copy to")
	return cmd
}

// storeCopy is one use of the command.
type storeCopy struct {
	out     io.Writer
	c       *config.Config
	keys    *config.Secrets
	options storecopy.Options
	chains  int      // of the audit, verified
	buckets []string // what is to be done about buckets, a line each
}

// configure finds out what is copied.
func (s *storeCopy) configure(ctx context.Context, p Process, file, from, to string) (err error) {
	place := readStore{file: file}
	if s.c, err = place.config(p); err != nil {
		return err
	}
	resolver := secret.NewResolver(p.Env)
	if s.keys, err = s.c.Resolve(ctx, resolver); err != nil {
		return err
	}
	if s.keys.Master.IsZero() {
		return errors.New("master_key is missing; an installation on PostgreSQL keeps its keys under it: set it, or TURNPIKE_MASTER_KEY, " +
			"to the key of the gateway (master.key in its data directory if it made one), " +
			"or to 32 random bytes (openssl rand -base64 32) if it has none")
	}
	if err := s.checkMasterKey(from); err != nil {
		return err
	}
	s.options.Server = app.PostgresOptions(s.c, s.keys)
	for _, one := range []struct {
		flag, text string
		into       **storecopy.Directory
	}{{"--from", from, &s.options.From}, {"--to", to, &s.options.To}} {
		url, is, err := databaseURL(ctx, resolver, one.text)
		if err != nil {
			return fmt.Errorf("%s: %w", one.flag, err)
		}
		if is {
			s.options.Server.URL = url
			continue
		}
		*one.into = &storecopy.Directory{
			Path: one.text, Database: app.DatabaseFile, Files: app.FilesDirectory,
			Others: append(keyFiles(), app.CheckpointsFile),
		}
	}
	return nil
}

// checkMasterKey refuses a master key that does not open what a gateway has encrypted with the key of its data directory.
// from is a directory or a URL.
func (s *storeCopy) checkMasterKey(from string) error {
	made, err := app.ReadMasterKey(from)
	if err != nil || made.IsZero() {
		return err
	}
	key, err := secret.ParseKey(made)
	if err != nil {
		return err
	}
	for _, v := range []secret.Value{s.keys.Master, s.keys.Previous} {
		if configured, err := secret.ParseKey(v); !v.IsZero() && err == nil && configured == key {
			return nil
		}
	}
	return fmt.Errorf("master_key is not the key that the gateway made in %s: set it to the content of that file",
		filepath.Join(from, app.MasterKeyFile))
}

// databaseURL returns the URL that a flag names; is = false: it names a directory.
func databaseURL(ctx context.Context, r *secret.Resolver, flag string) (url string, is bool, err error) {
	t, err := secret.Parse(flag)
	if err != nil {
		return "", false, err
	}
	literal := strings.HasPrefix(flag, "postgres://") || strings.HasPrefix(flag, "postgresql://")
	if !literal && (t.Ref() == "" || t.Ref().Kind() == secret.Vault || !t.Literal().IsZero()) {
		return "", false, nil
	}
	value, err := r.Resolve(ctx, t)
	if err == nil {
		err = config.CheckPostgresURL(value)
	}
	return value.Reveal(), true, err
}

func (s *storeCopy) copy(ctx context.Context, log *slog.Logger, said io.Writer) error {
	s.options.Log, s.options.Progress, s.options.Finish = log, &storecopy.Progress{}, s.finish
	done := everyTick(func() {
		if text := s.options.Progress.String(); text != "" {
			fmt.Fprintln(said, text)
		}
	})
	r, err := storecopy.Copy(ctx, s.options)
	done()
	if err != nil {
		return err
	}
	if len(r.Tables) == 0 { // only the last step was left
		fmt.Fprintln(s.out, "the copy was verified before and is now complete")
		return nil
	}
	var rows int64
	for _, t := range r.Tables {
		rows += t.Rows
	}
	for _, l := range r.Left {
		fmt.Fprintf(s.out, "not copied: %s: %s\n", plain(l.Table), l.Why)
	}
	for _, line := range s.buckets {
		fmt.Fprintln(s.out, line)
	}
	fmt.Fprintf(s.out, "copied and compared: %s of %s, %s\n", counted(int(rows), "row"), counted(len(r.Tables), "table"),
		counted(int(r.Files), "file"))
	fmt.Fprintf(s.out, "verified: %s of the audit\nthe copy is complete\n", counted(s.chains, "chain"))
	return nil
}

// everyTick calls do from time to time until the function that it returns is called.
func everyTick(do func()) (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(progressEvery)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				do()
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// finish carries the keys over, from files into the table of the installation or back, and verifies the audit of the target.
func (s *storeCopy) finish(ctx context.Context, sides storecopy.Sides) error {
	var err error
	if s.options.From != nil {
		err = app.CarryKeys(ctx, sides.Secrets, s.keys, sides.Directory)
	} else {
		for _, name := range keyFiles() { // of a try that was interrupted
			err = errors.Join(err, os.RemoveAll(filepath.Join(sides.Directory, name)))
		}
		if err == nil {
			err = app.WriteKeys(ctx, sides.Secrets, s.keys, sides.Directory)
		}
	}
	if err != nil {
		return fmt.Errorf("the keys of the installation: %w", err)
	}
	stored, err := sides.Target.Orgs(ctx)
	if err != nil {
		return err
	}
	s.buckets = s.aboutBuckets(stored)
	key, err := installation.Audit(ctx, sides.Secrets, installation.Configured{
		Master: s.keys.Master, Previous: s.keys.Previous, Audit: s.keys.Audit,
	})
	switch {
	case errors.Is(err, installation.ErrNotFound): // nothing has been signed
		return s.verifyAudit(ctx, sides.Target, make(ed25519.PublicKey, ed25519.PublicKeySize))
	case err != nil:
		return err
	}
	return s.verifyAudit(ctx, sides.Target, key.Public().(ed25519.PublicKey))
}

// aboutBuckets returns lines about the buckets whose files were not copied, or whose kind is not where their files are now. stored are
// the orgs of the target.
func (s *storeCopy) aboutBuckets(stored []org.Record) []string {
	lines := map[string]bool{}
	note := func(orgID string, buckets []org.Bucket) {
		for _, b := range buckets {
			name := fmt.Sprintf("the bucket %s of the org %s", plain(b.Name), plain(orgID))
			toServer := s.options.From != nil
			switch kind := b.KindName(); {
			case kind == org.BucketS3:
				lines["not copied: files of "+name+": they stay in S3"] = true
			case kind == org.BucketDisk && toServer:
				lines["set the kind of "+name+" to database: its files are there now"] = true
			case kind == org.BucketDatabase && !toServer:
				lines["set the kind of "+name+" to disk: its files are there now"] = true
			case kind == org.BucketDisk:
				lines["not copied: files of "+name+": they are in "+app.FilesDirectory+" of the data directory of the gateway on PostgreSQL"] = true
			}
		}
	}
	for _, o := range s.c.Orgs {
		note(o.ID, o.Runtime.Buckets)
	}
	for _, o := range stored {
		note(o.ID, o.Runtime.Buckets)
	}
	return slices.Sorted(maps.Keys(lines))
}

// keyFiles are the files of a data directory whose keys a database keeps itself.
func keyFiles() []string { return []string{app.AuditKeyFile, app.RunKeyFile, app.URLKeyFile} }

// verifyAudit verifies every chain of the target.
func (s *storeCopy) verifyAudit(ctx context.Context, target *database.Reader, public ed25519.PublicKey) error {
	path := s.c.Audit.Checkpoints
	if path == "" && s.options.From != nil {
		path = filepath.Join(s.options.From.Path, app.CheckpointsFile)
	}
	witness, _, err := audit.Witness{Path: path}.Read()
	if err != nil {
		return err
	}
	orgs, err := auditedOrgs(ctx, target, witness)
	if err != nil {
		return err
	}
	for _, id := range orgs {
		report, err := audit.Verify(ctx, id, target, public, witness)
		if err != nil {
			return err
		}
		if len(report.Findings) > 0 {
			return fmt.Errorf("the audit log does not match its hash chain: %s. The source has the same rows: see turnpike audit verify",
				report.Findings[0])
		}
		s.chains++
	}
	return nil
}
