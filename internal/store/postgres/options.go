package postgres

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// The values of [Options.Pooler].
const (
	PoolerNone        = "none"        // connections are sessions of the server
	PoolerTransaction = "transaction" // each transaction may have another session
	PoolerPrepared    = "prepared"    // the same, and the pooler knows prepared statements: PgBouncer from 1.21 on
)

// The values of [Options.Migrate].
const (
	MigrateStart = "start" // the schema is created and migrated
	MigrateNever = "never" // it is only checked
)

// The defaults of [Options].
const (
	DefaultPool             = 16
	DefaultStatementTimeout = 10 * time.Second
	DefaultLockTimeout      = 3 * time.Second
)

// idleTimeout is after which time the server ends a transaction in which nothing happens: that of a process that was stopped, or
// cannot be reached, and has the lock of an org. It is less than the others wait for a lock.
const idleTimeout = 2 * time.Second

// Options say where the store is and how it is reached.
type Options struct {
	// URL is postgres://user:password@host:port/database?parameters. The host may be a list, or the parameter host the
	// directory of a socket. User, host and database must be given: nothing is taken from the environment, nor from
	// files that the URL does not name. Without the parameter sslmode, it is verify-full, unless the host is this
	// machine.
	URL string

	// Schema is the schema of the installation. Empty means the first one of the role's search_path.
	Schema string

	// Pool is how many connections there are at most. 0 means DefaultPool.
	Pool int

	// Pooler says what is between the store and the server: PoolerNone, PoolerTransaction or PoolerPrepared. Empty
	// means PoolerNone. Poolers refuse most settings of sessions, so that none are sent through one: the role must have
	// the search_path (ALTER ROLE … SET search_path), and each transaction begins with the statements of SetLocal.
	Pooler string

	// ListenURL is a way around the pooler, for migrations and doorbells. Empty means URL, if there is no pooler, and
	// otherwise that there is none.
	ListenURL string

	// StatementTimeout is how long a statement may take. 0 means DefaultStatementTimeout.
	StatementTimeout time.Duration

	// LockTimeout is how long a statement waits for a lock, also for an advisory one. 0 means DefaultLockTimeout.
	LockTimeout time.Duration

	// Migrate says what Migrate does: MigrateStart or MigrateNever. Empty means MigrateStart.
	Migrate string

	// Log gets what an operator should know. nil means that nobody does.
	Log *slog.Logger
}

// PoolSize returns how many connections there are at most.
func (o Options) PoolSize() int {
	if o.Pool == 0 {
		return DefaultPool
	}
	return o.Pool
}

// SetLocal returns the statements with which a transaction begins behind a pooler, and which end with it: the time
// limits. It is empty without a pooler, where the connections have them.
func (o Options) SetLocal() string {
	if !o.pooled() {
		return ""
	}
	return fmt.Sprintf("SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d; SET LOCAL idle_in_transaction_session_timeout = %d",
		o.statementTimeout().Milliseconds(), o.lockTimeout().Milliseconds(), idleTimeout.Milliseconds())
}

func (o Options) pooled() bool { return o.Pooler != "" && o.Pooler != PoolerNone }

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

func (o Options) statementTimeout() time.Duration {
	if o.StatementTimeout == 0 {
		return DefaultStatementTimeout
	}
	return o.StatementTimeout
}

func (o Options) lockTimeout() time.Duration {
	if o.LockTimeout == 0 {
		return DefaultLockTimeout
	}
	return o.LockTimeout
}

// check returns what is wrong with the options beside the URLs.
func (o Options) check() error {
	switch o.Pooler {
	case "", PoolerNone, PoolerTransaction, PoolerPrepared:
	default:
		return fmt.Errorf("postgres.pooler is %q: set it to %s, %s or %s", o.Pooler, PoolerNone, PoolerTransaction, PoolerPrepared)
	}
	switch o.Migrate {
	case "", MigrateStart, MigrateNever:
	default:
		return fmt.Errorf("postgres.migrate is %q: set it to %s or %s", o.Migrate, MigrateStart, MigrateNever)
	}
	switch {
	case len(o.Schema) > 63 || strings.ContainsRune(o.Schema, 0):
		return errors.New("postgres.schema is not a name: use at most 63 bytes, and no NUL")
	case strings.HasPrefix(o.Schema, "pg_") || o.Schema == "information_schema":
		return fmt.Errorf("postgres.schema is %q, which belongs to the server: use another name", o.Schema)
	case o.Pool < 0:
		return errors.New("postgres.pool is negative: set it to 1 or more, or leave it out")
	case o.StatementTimeout < 0 || o.LockTimeout < 0:
		return errors.New("postgres.statement_timeout or lock_timeout is negative: set it to 1ms or more, or leave it out")
	case o.StatementTimeout%time.Millisecond != 0 || o.LockTimeout%time.Millisecond != 0:
		return errors.New("postgres.statement_timeout or lock_timeout has a part of a millisecond: use whole ones")
	case o.ListenURL != "" && !o.pooled():
		return errors.New("postgres.listen_url is a way around a pooler, and postgres.pooler says that there is none: " +
			"set the pooler, or remove listen_url")
	}
	return nil
}
