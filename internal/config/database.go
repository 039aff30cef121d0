package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// databases is a list of databases, which the management API reads and writes as a whole.
type databases struct{ objects[org.Database] }

func databaseList(into *[]org.Database) databases {
	return databases{objects[org.Database]{into, databaseKeys}}
}

// databaseKeys are the settings of a database.
func databaseKeys(d *org.Database) []key {
	return []key{
		{name: "name", value: text(&d.Name, "", "name", checkID), required: true, doc: "Name of the database, unique in the org. Models name it in their calls."},
		{name: "url", value: text(&d.URL, "", "URL or reference", org.CheckDatabaseURL), required: true,
			doc: "Where database_query reads: postgres://ROLE@HOST:PORT/DATABASE?sslmode=verify-full without a password, or a reference such as secret:shop_db to a URL with one. sslmode: verify-full (the default), require or disable. In the configuration file also sqlite:PATH."},
		{name: "write_url", value: unsetWord(text(&d.WriteURL, "", "URL or reference", checkWriteURL)).or("none, so that nothing can be changed"),
			doc: "Where database_write writes, with a role that may change the tables. As url."},
		{name: "schemas", value: texts(&d.Schemas, nil, "schema or table such as public or public.orders", org.CheckDatabaseSchema),
			doc: "Schemas and tables that statements may use. Empty: public in PostgreSQL, all tables (main) in SQLite."},
		{name: "statement_timeout", value: duration(&d.StatementTimeout, org.DefaultStatementTimeout, 100*time.Millisecond, org.MaxStatementTimeout), doc: "Maximum time of a statement."},
	}
}

func checkWriteURL(s string) error {
	if s == "" {
		return nil
	}
	return org.CheckDatabaseURL(s)
}

// checkDatabases compares databases with each other.
func (d *decoder) checkDatabases(path string, all []org.Database) {
	if len(all) > org.MaxDatabases {
		d.failPath(path, "has %d databases; want at most %d", len(all), org.MaxDatabases)
	}
	seen := map[string]bool{}
	for i, one := range all {
		if seen[one.Name] && one.Name != "" {
			d.failPath(fmt.Sprintf("%s[%d].name", path, i), "is that of another database")
		}
		seen[one.Name] = true
	}
}

func (l databases) json() any {
	all := make([]Settings, len(*l.into))
	for i := range *l.into {
		all[i] = settingsOf(l.keys(&(*l.into)[i]))
	}
	return all
}

func (l databases) shown() string {
	var all []string
	for _, one := range *l.into {
		all = append(all, one.Name)
	}
	return "[" + strings.Join(all, ", ") + "]"
}
