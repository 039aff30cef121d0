package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

// parameters are those that a URL may have. Others would be settings of the session, which Options has.
var parameters = []string{
	"host", "port", "user", "password", "database", "application_name", "connect_timeout", "target_session_attrs",
	"sslmode", "sslcert", "sslkey", "sslpassword", "sslrootcert", "sslcertmode", "sslnegotiation", "sslsni",
	"channel_binding", "require_auth",
}

// fixed returns the parameters that a URL has which does not name them. Without these the environment and files of the
// home directory would count.
func fixed() map[string]string {
	return map[string]string{
		"port": "5432", "connect_timeout": "5", "application_name": "turnpike", "target_session_attrs": "read-write",
		"passfile": "", "sslcert": "", "sslkey": "", "sslpassword": "", "sslrootcert": "", "sslcertmode": "allow",
		"sslnegotiation": "", "sslsni": "1", "channel_binding": "prefer", "require_auth": "",
		"min_protocol_version": "3.0", "max_protocol_version": "3.0",
	}
}

// Connector returns what opens the connections of the store, for [database/sql.OpenDB]. It opens none yet. Each one can
// write: servers that are in recovery are passed over, and a connection whose server begins to refuse writes is closed.
// An error says what is wrong with the options; it does not have the password.
func (o Options) Connector() (driver.Connector, error) {
	c, err := o.config("database", o.URL)
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*c), nil
}

// direct returns how a session of the server is reached that is the store's alone. ok = false: through the pooler only.
func (o Options) direct() (c *pgx.ConnConfig, ok bool, err error) {
	if !o.pooled() {
		c, err = o.config("database", o.URL)
		return c, true, err
	}
	if o.ListenURL == "" {
		c, err = o.config("database", o.URL)
		return c, false, err
	}
	url := o.ListenURL
	o.Pooler, o.ListenURL = PoolerNone, "" // they are not of this connection
	c, err = o.config("postgres.listen_url", url)
	return c, true, err
}

// config returns the settings of a connection. name is what the URL is called in errors.
func (o Options) config(name, text string) (*pgx.ConnConfig, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	given, err := splitURL(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c, err := given.parse(name)
	if err != nil {
		return nil, err
	}
	if !given.hasPassword {
		c.Password = ""
	}
	c.RuntimeParams = map[string]string{"application_name": c.RuntimeParams["application_name"]}
	if !o.pooled() {
		c.RuntimeParams["client_encoding"] = "UTF8"
		c.RuntimeParams["jit"] = "off"
		c.RuntimeParams["statement_timeout"] = strconv.FormatInt(o.statementTimeout().Milliseconds(), 10)
		c.RuntimeParams["lock_timeout"] = strconv.FormatInt(o.lockTimeout().Milliseconds(), 10)
		c.RuntimeParams["idle_in_transaction_session_timeout"] = strconv.FormatInt(idleTimeout.Milliseconds(), 10)
		if o.Schema != "" {
			c.RuntimeParams["search_path"] = quoteName(o.Schema)
		}
	}
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	if o.Pooler == PoolerTransaction {
		// Prepared statements stay behind in sessions of others; describe_exec returns wrong results.
		c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	c.OnPgError = func(_ *pgconn.PgConn, e *pgconn.PgError) bool {
		return !strings.EqualFold(e.Severity, "FATAL") && e.Code != codeReadOnly // false closes the connection
	}
	return c, nil
}

// givenURL is what a URL says.
type givenURL struct {
	text        string
	query       url.Values
	hasHosts    bool // in front of the path
	hasPort     bool
	hasPassword bool
}

// splitURL looks at the parts of a URL that would else come from the environment. Its errors quote none of it.
func splitURL(text string) (g givenURL, err error) {
	rest, ok := strings.CutPrefix(text, "postgres://")
	if !ok {
		rest, ok = strings.CutPrefix(text, "postgresql://")
	}
	if !ok {
		return g, errors.New("it is not a URL of PostgreSQL: write postgres://user@host/database")
	}
	if strings.Contains(rest, "#") {
		return g, errors.New(`the URL has a fragment: write "%23" for the character "#"`)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if g.query, err = url.ParseQuery(query); err != nil {
		return g, errors.New("its parameters cannot be read: write them as name=value&name=value, with %XX for other characters")
	}
	for name, values := range g.query {
		if len(values) > 1 {
			return g, fmt.Errorf("the parameter %q is given twice: remove one", name)
		}
	}
	authority, database, _ := strings.Cut(rest, "/")
	user, hosts := "", authority
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		user, hosts = authority[:i], authority[i+1:]
	}
	user, password, _ := strings.Cut(user, ":")
	g.text = text
	g.hasHosts = hosts != ""
	g.hasPort = hasPort(hosts) || g.query.Has("port")
	g.hasPassword = password != "" || g.query.Has("password")
	switch {
	case user == "" && g.query.Get("user") == "":
		return g, errors.New("the URL has no user: write postgres://user@host/database")
	case hosts == "" && g.query.Get("host") == "":
		return g, errors.New("the URL has no host: write postgres://user@host/database, or ?host= with the directory of a socket")
	case database == "" && g.query.Get("dbname") == "" && g.query.Get("database") == "":
		return g, errors.New("the URL has no database: write postgres://user@host/database")
	case g.query.Has("target_session_attrs") && g.query.Get("target_session_attrs") != "read-write":
		return g, errors.New("target_session_attrs is not read-write, and the store writes: remove it")
	}
	return g, nil
}

// hasPort reports whether one of the hosts of a list has a port.
func hasPort(hosts string) bool {
	for host := range strings.SplitSeq(hosts, ",") {
		if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
			return true
		}
	}
	return false
}

// parse returns the settings of the URL, and nothing of the environment.
func (g givenURL) parse(name string) (*pgx.ConnConfig, error) {
	added := url.Values{}
	for key, value := range fixed() {
		if !g.query.Has(key) && (key != "port" || !g.hasPort) {
			added.Set(key, value)
		}
	}
	if g.query.Has("sslmode") || g.query.Has("ssl") {
		return g.parseWith(name, added)
	}
	added.Set("sslmode", "prefer")
	c, err := g.parseWith(name, added)
	if err != nil || onThisMachine(c) {
		return c, err
	}
	added.Set("sslmode", "verify-full")
	return g.parseWith(name, added)
}

func (g givenURL) parseWith(name string, added url.Values) (*pgx.ConnConfig, error) {
	separator := "?"
	if strings.Contains(g.text, "?") {
		separator = "&"
	}
	allowed := append(slices.Clone(parameters), "passfile", "min_protocol_version", "max_protocol_version")
	var options pgx.ParseConfigOptions
	options.ConnStringAllowedKeys = allowed
	c, err := pgx.ParseConfigWithOptions(g.text+separator+added.Encode(), options)
	if err != nil {
		return nil, g.problem(name, err)
	}
	return c, nil
}

// problem returns the error of a URL that cannot be used, without the URL.
func (g givenURL) problem(name string, err error) error {
	for key := range g.query {
		if !slices.Contains(parameters, key) && key != "dbname" && key != "ssl" {
			return fmt.Errorf("%s: the parameter %q cannot be set in the URL: remove it, or use the settings below postgres", name, key)
		}
	}
	// The cause names a file, or a value of a parameter; the error itself has the URL.
	if cause := errors.Unwrap(err); cause != nil && !errors.As(cause, new(*url.Error)) && !g.hasPassword {
		return fmt.Errorf("%s: the URL cannot be used: %w", name, cause)
	}
	return fmt.Errorf("%s: the URL cannot be used: check host, port and parameters, write %%XX for other characters, and remove "+
		"PGSERVICE from the environment", name)
}

// onThisMachine reports whether all hosts are loopback addresses or sockets.
func onThisMachine(c *pgx.ConnConfig) bool {
	local := func(host string) bool {
		if network, _ := pgconn.NetworkAddress(host, 1); network == "unix" || host == "localhost" {
			return true
		}
		ip, err := netip.ParseAddr(host)
		return err == nil && ip.Unmap().IsLoopback()
	}
	return local(c.Host) && !slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return !local(f.Host) })
}

// quoteName returns a name in double quotes.
func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }

// closeTimeout is how long a server has to take leave.
const closeTimeout = time.Second

// closeConn closes a connection, whether or not its server answers.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx) // what it says is of no use any more
}
