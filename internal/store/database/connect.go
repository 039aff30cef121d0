package database

import (
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"os"

	modernc "modernc.org/sqlite"
)

// readers is the number of read connections.
const readers = 4

// busyTimeout is how long a statement waits for another process's lock, in
// milliseconds.
const busyTimeout = "5000"

// writeSettings returns the settings of the write connection, of which there is one.
func writeSettings() url.Values {
	return url.Values{
		"_txlock":       {"immediate"},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"}, // when a commit returns, it is on disk
		"_auto_vacuum":  {"INCREMENTAL"},
		"_foreign_keys": {"on"},
		"_busy_timeout": {busyTimeout},
		"_defensive":    {"1"},
		"_pragma": {
			"temp_store(MEMORY)", // savepoint journals stay in memory
			"secure_delete(ON)",  // what is deleted is overwritten, and not only unlinked
		},
	}
}

// readSettings returns the settings of read-only connections.
func readSettings() url.Values {
	return url.Values{"mode": {"ro"}, "_busy_timeout": {busyTimeout}, "_defensive": {"1"}}
}

// inspectSettings returns the settings of a short look at a file. It creates no -wal, as readSettings would, and
// ignores the -journal of a process that was killed when it created the file: the write connection rolls it back.
func inspectSettings(path string) url.Values {
	settings := readSettings()
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		settings.Set("immutable", "1")
	}
	return settings
}

// connect returns a connection pool for the file. It opens no connection yet.
func connect(path string, settings url.Values) (*sql.DB, error) {
	return Options{Path: path}.connect(settings)
}

// connect returns a connection pool for the file of a store.
func (o Options) connect(settings url.Values) (*sql.DB, error) {
	name := url.URL{Path: o.Path}
	c, err := modernc.NewConnector("file:" + name.EscapedPath() + "?" + settings.Encode())
	if err != nil {
		return nil, err
	}
	if o.Connector != nil {
		c = o.Connector(c)
	}
	return sql.OpenDB(c), nil
}
