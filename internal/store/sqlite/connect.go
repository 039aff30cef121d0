package sqlite

import (
	"database/sql"
	"net/url"

	modernc "modernc.org/sqlite"
)

// readers is how many connections read at a time.
const readers = 4

// busyTimeout is how long a statement waits for a lock that another process
// holds, in milliseconds.
const busyTimeout = "5000"

// writing are the settings of the one connection that writes.
func writing() url.Values {
	return url.Values{
		"_txlock":       {"immediate"},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"}, // a commit is on disk when it returns
		"_auto_vacuum":  {"INCREMENTAL"},
		"_foreign_keys": {"on"},
		"_busy_timeout": {busyTimeout},
		"_defensive":    {"1"},
		"_pragma":       {"temp_store(MEMORY)"}, // savepoints keep what they may take back in memory
	}
}

// reading are the settings of connections that cannot write.
func reading() url.Values {
	return url.Values{"mode": {"ro"}, "_busy_timeout": {busyTimeout}, "_defensive": {"1"}}
}

// connect returns a pool of connections to the file. None is opened before it
// is used.
func connect(path string, settings url.Values) (*sql.DB, error) {
	name := url.URL{Path: path}
	c, err := modernc.NewConnector("file:" + name.EscapedPath() + "?" + settings.Encode())
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}
