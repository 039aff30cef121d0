// Package storecopy copies a whole installation from SQLite to PostgreSQL, or back.
//
//	source ─► Settle ─► tables, a page after the other ─► files of buckets ─► digests of both sides ─► keys ─► target is complete
//	                    └ page and place in one transaction of the target
//
// No gateway may use either side meanwhile: a file is locked, and on a server the row Copying of the table installation keeps
// replicas out. A copy that was interrupted at any point goes on when it is repeated. Until all of it is verified no gateway
// starts on the target: the file is in a directory of its own, and the row stays.
//
// The tables and columns are those that both databases have. What is left out is in plan.go, each with the reason.
package storecopy

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// Directory is a data directory.
type Directory struct {
	Path     string
	Database string   // the name of the file of the database
	Files    string   // the name of the directory with the files of buckets
	Others   []string // names of other files that a target must not have
}

// Options say what is copied. One of From and To is a directory, and the other one nil: then it is the schema of Server.
type Options struct {
	From, To *Directory
	Server   postgres.Options
	Log      *slog.Logger // nil = discard

	// Finish is called when all tables and files are in the target and verified, and before the target is complete. It may
	// be called again for a target. It carries over what is beside them, and its error keeps the target from being complete.
	Finish func(ctx context.Context, s Sides) error

	Progress *Progress // nil = nobody looks

	pageRows  int                     // 0 = maxRows
	pageBytes int                     // 0 = maxBytes
	after     func(what string) error // a test ends the copy after a commit
}

// Sides are what Finish gets.
type Sides struct {
	Secrets   postgres.Secrets // of the schema
	Directory string           // of the source, or where files of the target are put until it is complete
	Target    *database.Reader // of the target
}

// Progress is how far a copy is. Its zero value is ready to use.
type Progress struct {
	mu          sync.Mutex
	step        string
	done, total int64
}

// String returns how far it is; empty before it begins.
func (p *Progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.step == "":
		return ""
	case p.total == 0:
		return fmt.Sprintf("%s: %d", p.step, p.done)
	}
	return fmt.Sprintf("%s: %d of %d", p.step, p.done, p.total)
}

func (p *Progress) begin(step string, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.done, p.total = step, 0, total
}

func (p *Progress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(n)
}

// Result is what a copy has copied.
type Result struct {
	Tables  []Copied
	Left    []Left
	Files   int64
	Resumed bool // an interrupted copy was gone on with
}

// Copied is a table.
type Copied struct {
	Table string
	Rows  int64
}

// Left is a table that was not copied.
type Left struct{ Table, Why string }

// The most that a page has.
const (
	maxRows  = 1000
	maxBytes = 8 << 20
)

// copying is one use of Copy.
type copying struct {
	o      Options
	source *side
	target *side
	plan   []*table
	result Result
}

// Copy copies an installation. After an error the target is as before, or incomplete: the same copy can be repeated then, and goes on
// where it was.
func Copy(ctx context.Context, o Options) (r Result, err error) {
	if (o.From == nil) == (o.To == nil) {
		return r, errors.New("a copy goes from a data directory to a PostgreSQL database, or back: turnpike backup and pg_dump make others")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Progress == nil {
		o.Progress = &Progress{}
	}
	if o.pageRows == 0 {
		o.pageRows, o.pageBytes = maxRows, maxBytes
	}
	c := &copying{o: o}
	if c.source, err = c.openSource(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.source.release(ctx)) }()
	if c.target, err = c.openTarget(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, c.target.release(ctx)) }()
	if c.target.verified {
		c.result.Resumed = true
		return c.result, c.target.install(ctx)
	}
	if err := c.copy(ctx); err != nil {
		return r, err
	}
	return c.result, nil
}

func (c *copying) copy(ctx context.Context) error {
	if err := c.makePlan(ctx); err != nil {
		return err
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	if err := c.goOn(ctx); err != nil {
		return fmt.Errorf("%w. %s", err, c.target.howToGoOn())
	}
	return nil
}

// begin makes the target one of this source, or finds out that it is.
func (c *copying) begin(ctx context.Context) error {
	found, err := c.fingerprint(ctx)
	if err != nil {
		return err
	}
	begun, err := c.target.hasTable(ctx, stateTable)
	if err != nil {
		return err
	}
	if begun {
		c.result.Resumed = true
		return c.sameCopy(ctx, found)
	}
	if err := c.wantEmpty(ctx); err != nil {
		return err
	}
	if c.target.server {
		if err := c.checkTexts(ctx); err != nil {
			return err
		}
	}
	return c.target.within(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, c.target.stateDDL()); err != nil {
			return err
		}
		return c.target.setState(ctx, tx, state{name: whole, cursor: []byte(c.source.name), digest: found})
	})
}

// sameCopy returns an error unless the unfinished copy in the target is of the source as it is.
func (c *copying) sameCopy(ctx context.Context, found []byte) error {
	was, err := c.target.state(ctx, whole)
	switch {
	case err != nil:
		return err
	case string(was.cursor) != c.source.name:
		return fmt.Errorf("%s has an unfinished copy of %s: repeat that copy, or name another target", c.target.name, was.cursor)
	case !bytes.Equal(was.digest, found):
		return fmt.Errorf("%s has an unfinished copy of %s, which has changed since: %s", c.target.name, c.source.name, c.target.howToStartOver())
	}
	return nil
}

// goOn copies what the target lacks, verifies all of it and completes the target.
func (c *copying) goOn(ctx context.Context) error {
	for _, t := range c.plan {
		if err := c.copyTable(ctx, t); err != nil {
			return fmt.Errorf("copy the table %s: %w", t.name, err)
		}
	}
	if err := c.recount(ctx); err != nil {
		return err
	}
	if err := c.setSequences(ctx); err != nil {
		return err
	}
	if err := c.copyFiles(ctx); err != nil {
		return fmt.Errorf("copy the files of buckets: %w", err)
	}
	for _, t := range c.plan {
		if err := c.verifyTable(ctx, t); err != nil {
			return err
		}
	}
	if err := c.verifyFiles(ctx); err != nil {
		return err
	}
	if err := c.finish(ctx); err != nil {
		return err
	}
	return c.target.complete(ctx)
}

// finish calls Options.Finish.
func (c *copying) finish(ctx context.Context) (err error) {
	if c.o.Finish == nil {
		return nil
	}
	c.o.Progress.begin("verifying the audit", 0)
	s := Sides{}
	server := c.source
	if c.target.server {
		server = c.target
		s.Directory = c.o.From.Path
	} else {
		s.Directory = c.target.staging
	}
	db := sql.OpenDB(server.connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	s.Secrets = postgres.NewSecrets(db)
	if c.target.server {
		s.Target = database.ReadServer(sql.OpenDB(database.Translated(server.connector)))
	} else if s.Target, err = database.OpenReader(ctx, c.target.file); err != nil {
		return err
	}
	return errors.Join(c.o.Finish(ctx, s), s.Target.Close())
}
