package cli

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// postgresOptions returns how the database of the configuration is reached.
func postgresOptions(ctx context.Context, c *config.Config, r *secret.Resolver) (postgres.Options, error) {
	database, err := c.DatabaseURL(ctx, r)
	if err != nil {
		return postgres.Options{}, err
	}
	listen, err := c.ListenURL(ctx, r)
	return app.PostgresOptions(c, &config.Secrets{Database: database, Listen: listen}), err
}

// visitPostgres returns a visit of the database of the configuration. Close it.
func visitPostgres(ctx context.Context, c *config.Config, r *secret.Resolver) (*postgres.Visit, error) {
	o, err := postgresOptions(ctx, c, r)
	if err != nil {
		return nil, err
	}
	return postgres.NewVisit(o)
}

// openStored opens what a gateway has stored in its database, or in the data directory, for reading. The error wraps
// fs.ErrNotExist if that is nothing yet. Close the reader.
func openStored(ctx context.Context, c *config.Config, r *secret.Resolver, data string) (*database.Reader, error) {
	if !c.UsesPostgres() {
		return database.OpenReader(ctx, filepath.Join(data, app.DatabaseFile))
	}
	o, err := postgresOptions(ctx, c, r)
	if err != nil {
		return nil, err
	}
	return postgres.OpenReader(ctx, o)
}

// checkPostgres checks the database of the gateway, and that its secrets are those of the installation.
func (d *doctor) checkPostgres(ctx context.Context) {
	const kind = "postgres"
	if !d.config.UsesPostgres() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	visit, err := visitPostgres(ctx, d.config, d.resolver)
	if err != nil {
		d.wrong(kind, "", "connection", err.Error(), "correct database, or what it refers to")
		return
	}
	defer visit.Close()
	p := d.config.Postgres
	for _, l := range visit.Examine(ctx, postgres.Examination{
		Schema: p.Schema, Pool: p.Pool, Migrates: p.Migrate == config.MigrateAtStart, Version: app.Version(),
	}) {
		d.found = append(d.found, finding{kind, "", l.Name, l.Status, l.Detail, l.Remedy})
	}
	d.checkInstallation(ctx, visit.Secrets())
	d.readStored(ctx, kind, "store", "can be reached")
}

// checkInstallation compares the secrets of the configuration with those of the installation.
func (d *doctor) checkInstallation(ctx context.Context, table installation.Secrets) {
	const kind, name = "postgres", "secrets"
	keys, err := d.config.Resolve(ctx, d.resolver)
	if err != nil {
		d.untried(kind, "", name, "the credentials of the configuration cannot be read")
		return
	}
	if _, err := table.Read(ctx, installation.Master); err != nil {
		d.untried(kind, "", name, "no gateway has stored any yet")
		return
	}
	err = installation.Check(ctx, table, installation.Configured{Master: keys.Master, Previous: keys.Previous, Pepper: keys.Pepper,
		Audit: keys.Audit})
	if err != nil {
		d.wrong(kind, "", name, err.Error(), "do what the message says; a gateway with this configuration does not start")
		return
	}
	d.well(kind, "", name, "master_key, cache_pepper and the keys of the audit, of URLs and of runs are those of the installation")
}

// installedAuditKey returns the key of the audit that the database keeps.
func installedAuditKey(ctx context.Context, p Process, c *config.Config) (ed25519.PrivateKey, error) {
	resolver := secret.NewResolver(p.Env)
	master, previous, err := c.MasterKeys(ctx, resolver)
	if err != nil {
		return nil, err
	}
	visit, err := visitPostgres(ctx, c, resolver)
	if err != nil {
		return nil, err
	}
	defer visit.Close()
	key, err := installation.Audit(ctx, visit.Secrets(), installation.Configured{Master: master, Previous: previous})
	if errors.Is(err, installation.ErrNotFound) {
		return nil, errors.New("no gateway has made a key of the audit in the database yet; start one")
	}
	return key, err
}

// nothingCopied is the exit status of a backup that is somebody else's to make.
const nothingCopied = 3

// explainBackup says how the data of a gateway on PostgreSQL is copied, and what is not in the database.
func explainBackup(ctx context.Context, out io.Writer, p Process, c *config.Config, file, archive string) error {
	resolver := secret.NewResolver(p.Env)
	o, err := postgresOptions(ctx, c, resolver)
	if err != nil {
		return err
	}
	server := secret.NewValue(cmp.Or(o.ListenURL, o.URL))
	fmt.Fprintf(out, `Nothing was copied: the data is in PostgreSQL. Copy it with

  pg_dump --schema=%s -Fc --file=%s %s

pg_dump reads the password from PGPASSWORD or ~/.pgpass, or asks for it. Restore the copy with pg_restore
before a gateway starts on it. Not in the database, and needed with it:

`, shellWord(schemaOf(ctx, o)), shellWord(archive), shellWord(config.PublicPostgresURL(server)))
	for _, line := range outsideDatabase(c, file) {
		fmt.Fprintln(out, "  - "+plain(line))
	}
	return &exitError{status: nothingCopied}
}

// schemaOf returns the schema of the installation; SCHEMA if it is not known.
func schemaOf(ctx context.Context, o postgres.Options) string {
	if o.Schema != "" {
		return o.Schema
	}
	const unknown = "SCHEMA"
	visit, err := postgres.NewVisit(o)
	if err != nil {
		return unknown
	}
	defer visit.Close()
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	name, err := visit.Schema(ctx)
	switch {
	case err != nil || name == "":
		return unknown
	case strings.ToLower(name) != name || strings.ContainsAny(name, `*?."`): // what pg_dump takes for a pattern
		return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
	}
	return name
}

// shellWord returns a text as a shell takes it for one word.
func shellWord(s string) string {
	plainWord := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@,+=", r)
	}
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plainWord(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// outsideDatabase lists what a gateway needs beside its database.
func outsideDatabase(c *config.Config, file string) (all []string) {
	if file != "" {
		all = append(all, "the configuration "+file+", and the files and variables that it refers to")
	} else {
		all = append(all, "the variables that configure the gateway")
	}
	all = append(all, "master_key ("+c.MasterKey.String()+"): without it, the secrets of orgs and the keys of the installation cannot be "+
		"opened")
	for _, one := range []struct {
		name string
		text secret.Text
	}{{"master_key_previous", c.MasterKeyPrevious}, {"cache_pepper", c.CachePepper}, {"audit.key", c.Audit.Key}} {
		if !one.text.IsZero() {
			all = append(all, one.name+" ("+one.text.String()+"): a gateway with another one does not start")
		}
	}
	if c.Audit.Checkpoints != "" {
		all = append(all, "audit.checkpoints ("+c.Audit.Checkpoints+"): shows whether a database is older than it should be; keep it elsewhere")
	}
	buckets := map[string]bool{}
	for _, o := range c.Orgs {
		for _, b := range o.Runtime.Buckets {
			switch b.KindName() {
			case org.BucketS3:
				buckets[fmt.Sprintf("the files of the bucket %s of the org %s, in S3 (%s)", b.Name, o.ID, b.Bucket)] = true
			case org.BucketDisk:
				buckets[fmt.Sprintf("the files of the bucket %s of the org %s, in the data directory %s", b.Name, o.ID, c.Data)] = true
			}
		}
	}
	all = append(all, slices.Sorted(maps.Keys(buckets))...)
	return append(all, "the files of buckets that orgs have set over the API, in S3 or on a disk; GET /api/buckets lists those of an org")
}
