package org

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Database is a database that the tools database_query and database_write of an org use: see [Runtime].Databases. It
// contains no password.
type Database struct {
	Name string `json:"name"` // unique in the org; the model names it

	// URL is where to read: a URL of [ParseDatabaseURL] without a password, or a reference to one.
	URL string `json:"url"`
	// WriteURL is where database_write writes, with a role of its own; "" = it is refused.
	WriteURL string `json:"write_url,omitempty"`

	// Schemas are the schemas and tables that statements may use, such as public or public.orders; empty = public in
	// PostgreSQL, all tables of the file in SQLite.
	Schemas []string `json:"schemas,omitempty"`

	StatementTimeout time.Duration `json:"statement_timeout_ns,omitempty"` // 0 = DefaultStatementTimeout

	FromFile bool `json:"-"` // the operator's file contains it
}

// How long a statement of a database tool may run.
const (
	DefaultStatementTimeout = 10 * time.Second
	MaxStatementTimeout     = 60 * time.Second
)

// MaxDatabases is how many databases an org may have.
const MaxDatabases = 20

// The kinds of databases.
const (
	PostgreSQL = "postgres"
	SQLite     = "sqlite"
)

// DatabaseURL says where a database is.
type DatabaseURL struct {
	Kind string // PostgreSQL or SQLite
	Path string // SQLite: of the file

	// PostgreSQL.
	Host     string
	Port     uint16
	User     string
	Password secret.Value
	Database string
	TLS      string // TLSVerify, TLSUnverified or TLSOff
}

// What a connection to PostgreSQL does about TLS: the values of sslmode.
const (
	TLSVerify     = "verify-full" // the default
	TLSUnverified = "require"     // encrypted, but nobody checks with whom
	TLSOff        = "disable"
)

// DatabaseRef returns the reference that the URL of a database is; false if it is a URL.
func DatabaseRef(s string) (secret.Ref, bool) {
	ref, err := secret.ParseRef(s)
	return ref, err == nil
}

// CheckDatabaseURL checks the URL of a database in settings: a URL without a password, or a reference to one.
func CheckDatabaseURL(s string) error {
	if kind := secret.Ref(s).Kind(); kind == secret.Vault || kind == secret.Env || kind == secret.File {
		_, err := secret.ParseRef(s)
		return err
	}
	u, err := ParseDatabaseURL(s)
	if err != nil {
		return err
	}
	if !u.Password.IsZero() {
		return errors.New("contains a password; store the whole URL as a secret and set a reference to it, such as secret:shop_db")
	}
	return nil
}

// ParseDatabaseURL reads a URL such as postgres://app:password@db.example.com:5432/shop?sslmode=require or
// sqlite:/srv/shop.db. The error does not quote it.
func ParseDatabaseURL(s string) (DatabaseURL, error) {
	if path, ok := strings.CutPrefix(s, SQLite+":"); ok {
		if path == "" || strings.ContainsAny(path, "\x00?#") || strings.HasPrefix(path, "//") {
			return DatabaseURL{}, errors.New("must name a file, such as sqlite:/srv/shop.db, without ? and #")
		}
		return DatabaseURL{Kind: SQLite, Path: filepath.Clean(path)}, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" || u.Opaque != "" {
		return DatabaseURL{}, errors.New("must be a URL such as postgres://app@db.example.com:5432/shop or, in the configuration file, sqlite:/srv/shop.db")
	}
	out := DatabaseURL{Kind: PostgreSQL, Host: u.Hostname(), Port: 5432, User: u.User.Username(), Database: strings.TrimPrefix(u.Path, "/"), TLS: TLSVerify}
	if password, ok := u.User.Password(); ok && password != "" {
		out.Password = secret.NewValue(password)
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return DatabaseURL{}, errors.New("its port must be a number from 1 to 65535")
		}
		out.Port = uint16(n)
	}
	switch {
	case out.Host == "" || strings.ContainsAny(out.Host, ",/\x00 "):
		return DatabaseURL{}, errors.New("must name one host, such as db.example.com")
	case out.User == "" || strings.Contains(out.User, "\x00"):
		return DatabaseURL{}, errors.New("must name the role, such as postgres://app@db.example.com/shop")
	case out.Database == "" || strings.ContainsAny(out.Database, "/\x00"):
		return DatabaseURL{}, errors.New("must name one database after the host, such as postgres://app@db.example.com/shop")
	case u.Fragment != "":
		return DatabaseURL{}, errors.New("must have no fragment")
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return DatabaseURL{}, errors.New("its query is not valid")
	}
	for name, given := range values {
		if name != "sslmode" || len(given) != 1 {
			return DatabaseURL{}, errors.New("sslmode, once, is the only parameter that it may have")
		}
		if !slices.Contains([]string{TLSVerify, TLSUnverified, TLSOff}, given[0]) {
			return DatabaseURL{}, fmt.Errorf("its sslmode must be %s (the default), %s or %s", TLSVerify, TLSUnverified, TLSOff)
		}
		out.TLS = given[0]
	}
	return out, nil
}

// identifier is the pattern of the names of schemas, tables and columns that settings and writes may contain.
const identifier = `[a-zA-Z_][a-zA-Z0-9_]{0,62}`

// IsIdentifier reports whether s is a plain name of a schema, a table or a column.
func IsIdentifier(s string) bool { return regexp.MustCompile("^" + identifier + "$").MatchString(s) }

// CheckDatabaseSchema checks an item of Database.Schemas.
func CheckDatabaseSchema(s string) error {
	schema, table, qualified := strings.Cut(s, ".")
	if !IsIdentifier(schema) || qualified && !IsIdentifier(table) {
		return errors.New("must be a schema or a table, such as public or public.orders")
	}
	return nil
}

// Timeout returns how long a statement may run.
func (d Database) Timeout() time.Duration {
	if d.StatementTimeout <= 0 {
		return DefaultStatementTimeout
	}
	return min(d.StatementTimeout, MaxStatementTimeout)
}

// Database returns the database with the name, or false.
func (r Runtime) Database(name string) (Database, bool) {
	for _, d := range r.Databases {
		if d.Name == name {
			return d, true
		}
	}
	return Database{}, false
}
