package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/model"
)

// doctorTime is how long one check may take.
const doctorTime = 20 * time.Second

// maxDoctorAgents is how many stored agents of an org are looked at.
const maxDoctorAgents = 1000

// The results of a check.
const (
	isWell   = "well"
	isWrong  = "wrong"
	degraded = "degraded" // it works, with less than the configuration names
	notTried = "not tried"
)

// finding is what a check has found.
type finding struct {
	Kind   string `json:"kind"` // such as database
	Org    string `json:"org,omitempty"`
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Remedy string `json:"remedy,omitempty"`
}

// doctor knows what the checks need. A check that fails says so in what it finds.
type doctor struct {
	config    *config.Config
	resolver  *secret.Resolver
	keyring   *secret.Keyring // nil = there is no vault
	data      string
	way       *egress.Egress
	stored    []org.Contents           // of the data directory
	webhooks  []org.Webhook            // that are stored
	agents    map[string][]agent.Agent // that are stored, by org; archived ones are left out
	databases *sqltool.Connections
	program   []string // starts this program as a child process
	found     []finding
}

// checks are all checks, in the order in which their findings are printed. A new part of the gateway adds its check here.
func (d *doctor) checks() []func(context.Context) {
	return []func(context.Context){d.checkData, d.checkPostgres, d.checkProviders, d.checkServers, d.checkAgents, d.checkDatabases,
		d.checkBuckets, d.checkSandbox, d.checkWebhooks}
}

func doctorCommand(p Process) *cobra.Command {
	var from readStore
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Try everything that the configuration names, and say what is wrong and what to do",
		Long: `Try what the configuration and the data directory name, as the gateway would: the
data directory, the PostgreSQL database if there is one, each provider, MCP server, agent, hook, database,
bucket and webhook, and the sandbox
for code. MCP servers with a command are started for the check. A small file is written
to each bucket, read and deleted, and 6*7 is run in the sandbox. Nothing else is changed,
and receivers of webhooks get no message. "well" is only said of what was tried. Secrets
are never printed.

A route of which some targets work is degraded, and so are the providers that only its
other targets name.

The exit status is 0 if nothing is wrong, and 1 otherwise.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := examine(cmd.Context(), p, &from)
			if err != nil {
				return err
			}
			wrong := countOf(found, isWrong)
			if asJSON {
				err = printFindings(cmd.OutOrStdout(), found, wrong)
			} else {
				sayFindings(cmd.OutOrStdout(), found, wrong)
			}
			if err == nil && wrong > 0 {
				return &exitError{1, nil}
			}
			return err
		},
	}
	cmd.Flags().StringVarP(&from.file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	cmd.Flags().StringVar(&from.data, "data", "", "data `DIRECTORY` (default: data of the configuration)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func printFindings(out io.Writer, found []finding, wrong int) error {
	text, err := json.MarshalIndent(struct {
		Checks []finding `json:"checks"`
		Wrong  int       `json:"wrong"`
	}{found, wrong}, "", "  ")
	if err == nil {
		_, err = fmt.Fprintln(out, escaped(string(text)))
	}
	return err
}

func sayFindings(out io.Writer, found []finding, wrong int) {
	for _, f := range found {
		name := f.Name
		if f.Org != "" {
			name = f.Org + "/" + f.Name
		}
		fmt.Fprintf(out, "%-9s  %s %s: %s\n", f.Status, f.Kind, plain(name), plain(f.Detail))
		if f.Remedy != "" {
			fmt.Fprintf(out, "%-9s  to do: %s\n", "", plain(f.Remedy))
		}
	}
	also := ""
	if n := countOf(found, degraded); n > 0 {
		also = fmt.Sprintf(", %d degraded", n)
	}
	fmt.Fprintf(out, "%d checks, %d wrong%s\n", len(found), wrong, also)
}

// countOf returns how many findings have a status.
func countOf(found []finding, status string) (n int) {
	for _, f := range found {
		if f.Status == status {
			n++
		}
	}
	return n
}

// examine makes all checks.
func examine(ctx context.Context, p Process, from *readStore) ([]finding, error) {
	c, err := from.config(p)
	var mistakes *config.Error
	if errors.As(err, &mistakes) {
		return mistaken(nil, mistakes.Mistakes), nil
	}
	if err != nil {
		return nil, err
	}
	if from.data != "" { // whatever the configuration says of a database
		c.Database = secret.Text{}
	}
	program, err := p.ownProgram()
	if err != nil {
		return nil, err
	}
	d := &doctor{program: program, config: c, resolver: secret.NewResolver(p.Env), data: from.directory(c), way: egress.New(app.OutboundPolicy(c.Outbound.SSRF), egress.Options{})}
	defer d.way.CloseIdleConnections()
	if d.keyring, err = vaultKeys(ctx, c, d.resolver, d.data); err != nil {
		d.wrong("configuration", "", "master_key", err.Error(), "correct master_key, or what it refers to")
	}
	d.found = mistaken(d.found, refusedServers(c))
	d.databases = sqltool.NewConnections(sqltool.ConnectionOptions{
		Dial: d.way.DialGuarded, OperatorDial: d.way.DialOperator, Own: sqltool.OwnFiles(d.data),
	})
	defer d.databases.Close()
	for _, check := range d.checks() {
		check(ctx)
	}
	return d.found, ctx.Err()
}

// mistaken adds mistakes of the configuration.
func mistaken(found []finding, all []config.Mistake) []finding {
	for _, m := range all {
		found = append(found, finding{"configuration", "", cmp.Or(m.Path, "file"), isWrong, m.String(), "correct the configuration file"})
	}
	return found
}

func (d *doctor) well(kind, orgID, name, detail string) {
	d.found = append(d.found, finding{kind, orgID, name, isWell, detail, ""})
}

func (d *doctor) wrong(kind, orgID, name, detail, remedy string) {
	d.found = append(d.found, finding{kind, orgID, name, isWrong, detail, remedy})
}

func (d *doctor) untried(kind, orgID, name, detail string) {
	d.found = append(d.found, finding{kind, orgID, name, notTried, detail, ""})
}

// checkData writes a file to the data directory and removes it, and reads the store.
func (d *doctor) checkData(ctx context.Context) {
	const kind = "data"
	if _, err := os.Stat(d.data); errors.Is(err, fs.ErrNotExist) {
		d.untried(kind, "", d.data, "the directory does not exist yet; the gateway creates it at its start")
		return
	}
	f, err := os.CreateTemp(d.data, ".doctor-*")
	if err == nil {
		_, err = f.Write(make([]byte, 4096))
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		d.wrong(kind, "", d.data, "nothing can be written: "+plainPathError(err), "give the user of the gateway the right to write there, and check that the disk has space")
		return
	}
	if d.config.UsesPostgres() {
		d.well(kind, "", d.data, "can be written; what is stored is in PostgreSQL")
		return
	}
	d.readStored(ctx, kind, d.data, "can be written")
}

// readStored reads the store. name and tried are those of the line about it.
func (d *doctor) readStored(ctx context.Context, kind, name, tried string) {
	store, err := d.openStored(ctx)
	if errors.Is(err, fs.ErrNotExist) {
		d.well(kind, "", name, tried+"; no gateway has stored anything yet")
		return
	}
	if err == nil {
		defer store.Close()
		err = store.EachOrg(ctx, func(c org.Contents) error { d.stored = append(d.stored, c); return nil })
	}
	if err == nil {
		d.webhooks, err = store.AllWebhooks(ctx)
	}
	d.agents = map[string][]agent.Agent{}
	for i := 0; err == nil && i < len(d.stored); i++ {
		d.agents[d.stored[i].ID], _, err = store.Agents(ctx, d.stored[i].ID, agent.Query{Limit: maxDoctorAgents})
	}
	var rest []database.UsageRest
	if err == nil {
		rest, err = store.UsageRest(ctx, audit.DayOf(time.Now().UnixMilli()))
	}
	if err != nil {
		d.wrong(kind, "", name, "the store cannot be read: "+err.Error(), "do what the message says; restore a backup if the file is damaged")
		return
	}
	d.well(kind, "", name, fmt.Sprintf("%s, and the store with %d orgs can be read", tried, len(d.stored)))
	d.checkMasterKey()
	for _, u := range rest {
		d.well("usage", u.Org, "today", restText(u))
	}
}

// checkMasterKey says where the master key is that the gateway made.
func (d *doctor) checkMasterKey() {
	if d.config.UsesPostgres() || !d.config.MasterKey.IsZero() {
		return
	}
	const kind = "master key"
	path := filepath.Join(d.data, app.MasterKeyFile)
	sealed := 0
	for _, w := range d.webhooks {
		if !w.Declared() {
			sealed++
		}
	}
	for _, o := range d.stored {
		sealed += len(o.Secrets)
	}
	switch {
	case d.keyring != nil:
		d.well(kind, "", path,
			"encrypts the secrets of orgs; no backup contains it, so keep a copy in another place than the backups")
	case sealed > 0:
		d.wrong(kind, "", path, "is missing, so the secrets of orgs and webhooks cannot be decrypted",
			"restore the file from your copy, or set master_key to the key that the gateway had, and restart the gateway")
	}
}

// vaultKeys returns what encrypts the secrets of orgs: the master key of the configuration, or the one that the gateway
// made in its data directory; nil if there is neither.
func vaultKeys(ctx context.Context, c *config.Config, r *secret.Resolver, data string) (*secret.Keyring, error) {
	ring, err := c.Keyring(ctx, r)
	if ring != nil || err != nil || c.UsesPostgres() {
		return ring, err
	}
	key, err := app.ReadMasterKey(data)
	if err != nil || key.IsZero() {
		return nil, err
	}
	return secret.NewKeyring(key)
}

// restText says what an org has more of than sums of usage.
func restText(u database.UsageRest) string {
	var many []string
	if u.Users {
		many = append(many, fmt.Sprintf("%d end users", audit.MaxUsageUsers))
	}
	if u.Models {
		many = append(many, fmt.Sprintf("%d models", audit.MaxUsageModels))
	}
	return "more than " + strings.Join(many, " and ") + ": the usage of the others is added up together; the setting models of keys limits the names of models"
}

// openStored opens what the gateway has stored, for reading.
func (d *doctor) openStored(ctx context.Context) (*database.Reader, error) {
	return openStored(ctx, d.config, d.resolver, d.data)
}

func plainPathError(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// checkProviders asks each provider for its models.
func (d *doctor) checkProviders(ctx context.Context) {
	const kind = "provider"
	keys, err := d.config.Resolve(ctx, d.resolver)
	var mistakes *config.Error
	if errors.As(err, &mistakes) {
		d.found = mistaken(d.found, mistakes.Mistakes)
	}
	if err != nil {
		for _, p := range d.config.Providers {
			d.untried(kind, "", p.Name, "the credentials of the configuration cannot be read")
		}
		return
	}
	limited, cancel := context.WithTimeout(ctx, doctorTime*time.Duration(max(1, len(d.config.Providers))))
	defer cancel()
	err = app.TryProviders(limited, d.config, keys, func(name string, tried bool, err error) {
		var failed *model.Error
		switch {
		case !tried:
			d.untried(kind, "", name, "its API has no list of models to ask for without a model call")
		case err == nil:
			d.well(kind, "", name, "answers with its list of models")
		case errors.As(err, &failed) && (failed.Status == 401 || failed.Status == 403):
			d.wrong(kind, "", name, fmt.Sprintf("refuses the key with status %d", failed.Status), "set api_key of the provider to a valid key")
		case errors.As(err, &failed) && failed.Status == 404:
			d.untried(kind, "", name, "has no list of models (status 404); if model calls fail too, check base_url")
		case errors.As(err, &failed) && failed.Status/100 == 2:
			d.wrong(kind, "", name, fmt.Sprintf("answers with status %d, but not with a list of models", failed.Status), "check base_url: it must lead to an API of this kind")
		case errors.As(err, &failed) && failed.Status != 0:
			d.wrong(kind, "", name, fmt.Sprintf("answers with status %d", failed.Status), "check base_url and the state of the provider, and try again")
		default:
			d.wrong(kind, "", name, "does not answer", "check base_url, and that this machine can reach it")
		}
	})
	if err != nil {
		d.wrong(kind, "", "all", err.Error(), "correct the provider in the configuration file")
		return
	}
	d.checkRoutes()
}

// checkRoutes says which routes have lost targets with the providers that were found wrong. Such a provider is degraded if
// each of its routes has another target.
func (d *doctor) checkRoutes() {
	failed := map[string]int{} // provider → its finding
	for i, f := range d.found {
		if f.Kind == "provider" && f.Status == isWrong {
			failed[f.Name] = i
		}
	}
	replaced := map[string]bool{} // by another target, in all routes so far
	for _, route := range d.config.Routes {
		var lost []string
		for _, t := range route.Targets {
			if _, is := failed[t.Provider]; is {
				lost = append(lost, t.Provider)
			}
		}
		good := len(route.Targets) - len(lost)
		names := strings.Join(sortedSet(lost), ", ")
		const kind = "route"
		switch {
		case len(lost) == 0:
			d.well(kind, "", route.Model, "no provider of its targets was found wrong")
		case good == 0:
			d.wrong(kind, "", route.Model, "none of its targets can be used: "+names, "see the lines of these providers")
		default:
			d.found = append(d.found, finding{kind, "", route.Model, degraded,
				fmt.Sprintf("%d of %d targets can be used, and get the requests of the others: %s", good, len(route.Targets), names),
				"see the lines of these providers"})
		}
		for _, name := range lost {
			was, named := replaced[name]
			replaced[name] = good > 0 && (was || !named)
		}
	}
	for name, i := range failed {
		if replaced[name] {
			d.found[i].Status = degraded
		}
	}
}

// orgs calls f for each org of the file and of the store, with its contents as they work.
func (d *doctor) orgs(f func(id string, servers []org.MCPServer, runtime org.Runtime)) {
	file := directory.FromFile(d.config, &config.Secrets{})
	stored := map[string]org.Contents{}
	var ids []string
	for _, o := range d.config.Orgs {
		ids = append(ids, o.ID)
	}
	for _, c := range d.stored {
		stored[c.ID] = c
		ids = append(ids, c.ID)
	}
	for _, id := range sortedSet(ids) {
		declared := file.Of(id)
		runtime := stored[id].Runtime
		if declared.Runtime {
			runtime = declared.Record.Runtime
		}
		f(id, append(org.WithSwitches(declared.Servers, stored[id].Off), stored[id].Servers...), runtime)
	}
}

// checkServers connects to each MCP server.
func (d *doctor) checkServers(ctx context.Context) {
	pool := mcppool.New(mcppool.Options{
		Out: d.way, Secrets: d.resolver, Vaults: storedVaults(d.keyring, d.openStored), Refused: directory.RefusedServer,
		Log: slog.New(slog.DiscardHandler),
	})
	defer pool.Close()
	d.orgs(func(id string, servers []org.MCPServer, _ org.Runtime) {
		for _, s := range servers {
			const kind = "mcp server"
			if !s.Enabled {
				d.untried(kind, id, s.Name, "is not enabled")
				continue
			}
			limited, cancel := context.WithTimeout(ctx, doctorTime)
			var said bytes.Buffer
			err := checkServer(limited, &said, pool, s)
			cancel()
			if err != nil {
				d.wrong(kind, id, s.Name, err.Error(), "correct the server's settings, or start it; turnpike mcp check "+s.Name+" says more")
				continue
			}
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			d.well(kind, id, s.Name, lines[len(lines)-1])
		}
	})
}

// checkDatabases connects to each database, with the role that reads and the one that writes.
func (d *doctor) checkDatabases(ctx context.Context) {
	d.orgs(func(id string, _ []org.MCPServer, runtime org.Runtime) {
		for _, one := range runtime.Databases {
			const kind = "database"
			limited, cancel := context.WithTimeout(ctx, doctorTime)
			engine, err := d.databases.Check(limited, id, one, d.secretOf(id))
			var granted []string
			if err == nil {
				granted, err = d.databases.Granted(limited, id, one, d.secretOf(id))
			}
			cancel()
			var blocked *egress.BlockedError
			switch {
			case len(granted) > 0:
				d.wrong(kind, id, one.Name, "the role that reads may execute functions that do more than it may itself: "+strings.Join(granted, "; "),
					"REVOKE EXECUTE ON FUNCTION … FROM PUBLIC, and grant it to the roles that need it; see tool-database.md")
			case err == nil:
				d.well(kind, id, one.Name, databaseTried(engine, one.WriteURL != ""))
			case errors.As(err, &blocked):
				d.wrong(kind, id, one.Name, "the outbound policy refuses its address: "+blocked.Reason, cmp.Or(strings.TrimPrefix(directory.AllowedBy(blocked), "; "), "correct its URL"))
			case sqltool.IsDangerous(err):
				d.wrong(kind, id, one.Name, "is not used: "+err.Error(), "set its URL to one with such a role; see tool-database.md")
			default:
				what, remedy := sqltool.Explain(err)
				d.wrong(kind, id, one.Name, what, remedy)
			}
		}
	})
}

// databaseTried says what was tried with a database, successfully.
func databaseTried(engine string, writes bool) string {
	switch {
	case engine == org.SQLite && writes:
		return "the file was opened, also for writing, and its tables were listed"
	case engine == org.SQLite:
		return "the file was opened, and its tables were listed; without write_url nothing can be changed"
	case writes:
		return "answered a query with the role that reads and with the one that writes; neither is dangerous"
	}
	return "answered a query; its role is not dangerous; without write_url nothing can be changed"
}

// secretOf looks up references of an org.
func (d *doctor) secretOf(orgID string) func(context.Context, string) (string, error) {
	vault := storedVaults(d.keyring, d.openStored)
	resolver := d.resolver
	if d.keyring != nil {
		resolver = resolver.WithVault(func(ctx context.Context, name string) (secret.Value, error) {
			s, err := vault.Read(ctx, orgID, name)
			if err != nil {
				return secret.Value{}, err
			}
			return d.keyring.Open(orgID, name, s.Sealed)
		})
	}
	return func(ctx context.Context, text string) (string, error) {
		t, err := secret.Parse(text)
		if err != nil {
			return "", err
		}
		v, err := resolver.Resolve(ctx, t)
		return v.Reveal(), err
	}
}

// checkWebhooks connects to the address of each webhook. Nothing is sent.
func (d *doctor) checkWebhooks(ctx context.Context) {
	all := slices.Clone(d.webhooks)
	for _, o := range d.config.Orgs {
		for _, w := range o.Webhooks {
			all = slices.DeleteFunc(all, func(s org.Webhook) bool { return s.Org == o.ID && s.Name == w.Name })
			one := org.Webhook{Org: o.ID, Name: w.Name, URL: w.URL}
			if !w.Enabled {
				one.Stopped = org.StoppedByOrg
			}
			all = append(all, one)
		}
	}
	for _, w := range all {
		const kind = "webhook"
		if w.Stopped != "" {
			d.untried(kind, w.Org, w.Name, "is not enabled")
			continue
		}
		limited, cancel := context.WithTimeout(ctx, doctorTime)
		err := d.reach(limited, w.URL)
		cancel()
		var blocked *egress.BlockedError
		switch {
		case err == nil:
			d.well(kind, w.Org, w.Name, "its address accepts connections; no message was sent")
		case errors.As(err, &blocked):
			d.wrong(kind, w.Org, w.Name, "the outbound policy refuses its address: "+blocked.Reason, cmp.Or(strings.TrimPrefix(directory.AllowedBy(blocked), "; "), "correct its URL"))
		default:
			d.wrong(kind, w.Org, w.Name, "its address accepts no connection", "correct its URL, or start the receiver")
		}
	}
}

// reach opens a connection to the host of the URL and closes it.
func (d *doctor) reach(ctx context.Context, rawURL string) error {
	if _, err := d.way.CheckURL(rawURL); err != nil {
		return err
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return err
	}
	port := cmp.Or(u.Port(), map[string]string{"https": "443", "http": "80"}[u.Scheme])
	conn, err := d.way.DialGuarded(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}
