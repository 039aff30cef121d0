package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/money"
)

// remote is a running gateway, spoken to over its management API: the process
// that serves is the only one that writes its store.
type remote struct {
	p   Process
	url string     // "" = as address says
	own *readStore // the gateway's configuration
}

var errNoKey = errors.New("no key: set TURNPIKE_KEY to a key whose role may do this, see --help")

// errNoAddress is why the configuration does not say where its gateway is.
var errNoAddress = errors.New("listen has the port 0, so the configuration does not name the port: name the gateway with --url")

// errDataNamed is why no gateway was asked: the command is about a data directory.
var errDataNamed = errors.New("no gateway was asked, because --data names a data directory, and neither --url nor --config a gateway")

// refusedError is an answer of the gateway's API that is an error.
type refusedError struct{ code, message string }

func (e *refusedError) Error() string { return e.message }

// remoteCommand adds to a command what says where the gateway is, --url and --config, and
// returns the gateway.
func remoteCommand(cmd *cobra.Command, p Process) *remote {
	m := &remote{own: new(readStore)}
	cmd.PersistentFlags().StringVarP(&m.own.file, "config", "c", "", "configuration `FILE` of the gateway (default: turnpike.yaml, if it exists)")
	m.flags(cmd, p)
	cmd.MarkFlagsMutuallyExclusive("config", "url")
	return m
}

// flags adds the flag that says where the gateway is.
func (m *remote) flags(cmd *cobra.Command, p Process) {
	m.p = p
	cmd.PersistentFlags().StringVar(&m.url, "url", "", "`URL` of the running gateway (environment: TURNPIKE_URL; default: listen of the configuration)")
}

// address returns the URL of the gateway, without a slash at its end: --url, listen of the
// configuration that --config names, TURNPIKE_URL, or listen of the usual configuration.
// The error is errNoAddress if that has no port.
func (m *remote) address() (string, error) {
	base := m.url
	if base == "" && m.own.file == "" {
		base, _ = m.p.Env("TURNPIKE_URL")
	}
	if base == "" {
		c, err := m.own.config(m.p)
		if err != nil {
			return "", err
		}
		return localURL(c)
	}
	if u, err := url.Parse(base); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", fmt.Errorf("the URL of the gateway is %q: it must begin with http:// or https://, as in http://127.0.0.1:8080", base)
	}
	return strings.TrimRight(base, "/"), nil
}

// localURL returns where this machine reaches the gateway of the configuration.
func localURL(c *config.Config) (string, error) {
	host, port, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	if strings.Trim(port, "0") == "" {
		return "", errNoAddress
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port), nil
}

// oneArg is the Args of commands that take one argument. Its error shows the command with the
// name of the argument.
func oneArg(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	use := strings.TrimSuffix(cmd.UseLine(), " [flags]")
	return fmt.Errorf("%s takes 1 argument, not %d: write %s", cmd.CommandPath(), len(args), use)
}

// oneName is the Args of commands that take one id or name and put it into a URL path. It refuses
// what would change the path.
func oneName(cmd *cobra.Command, args []string) error {
	if err := oneArg(cmd, args); err != nil {
		return err
	}
	if strings.Trim(args[0], ".") == "" {
		return noName(cmd, args[0])
	}
	return nil
}

// noName is the error for an argument that can be no id and no name. It names the command that lists what there is.
func noName(cmd *cobra.Command, text string) error {
	for _, other := range cmd.Parent().Commands() {
		if other.Name() == "list" {
			return fmt.Errorf("%q is not the id or name of anything; %s shows what there is", text, other.CommandPath())
		}
	}
	return fmt.Errorf("%q is not the id or name of anything", text)
}

// call sends a request and decodes the answer into out, unless that is nil. Nothing is sent
// if the flags name something else than what the gateway would use: --data alone, or an org
// that is not the org of the key.
func (m *remote) call(ctx context.Context, method, path string, in, out any) error {
	if m.own.data != "" && m.url == "" && m.own.file == "" {
		return errDataNamed
	}
	if m.own.org != "" {
		if err := m.checkOrg(ctx); err != nil {
			return err
		}
	}
	return m.exchange(ctx, method, path, in, out)
}

// checkOrg returns an error unless the key belongs to the org that --org names.
func (m *remote) checkOrg(ctx context.Context) error {
	var of struct{ ID string }
	err := m.exchange(ctx, http.MethodGet, "/api/org", nil, &of)
	var refused *refusedError
	switch {
	case errors.As(err, &refused) && refused.code == "role_not_allowed":
		return errors.New("--org: the role of TURNPIKE_KEY does not allow to check its org; leave out --org: a running gateway uses the org of the key")
	case err == nil && of.ID != m.own.org:
		return fmt.Errorf("--org: TURNPIKE_KEY belongs to the org %s, not to %s; set TURNPIKE_KEY to a key of that org, or leave out --org", of.ID, m.own.org)
	}
	return err
}

// useStore reports whether the data directory is used, because no gateway could be asked. With
// --url alone it is not: it may belong to another gateway.
func (m *remote) useStore(err error) bool {
	if m.url != "" && m.own.data == "" && m.own.file == "" {
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errNoKey) || errors.Is(err, errNoAddress) || errors.Is(err, errDataNamed)
}

func (m *remote) exchange(ctx context.Context, method, path string, in, out any) error {
	key, _ := m.p.Env("TURNPIKE_KEY")
	if key == "" {
		return errNoKey
	}
	base, err := m.address()
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	status, data, err := send(base, req)
	if err != nil {
		return err
	}
	if status >= 300 {
		var failed struct {
			Error struct{ Code, Message string }
		}
		if json.Unmarshal(data, &failed) == nil && failed.Error.Message != "" {
			return &refusedError{failed.Error.Code, failed.Error.Message}
		}
		var agents struct{ Code, Error string } // the form of errors below /api/agents
		if json.Unmarshal(data, &agents) == nil && agents.Error != "" {
			return &refusedError{agents.Code, agents.Error}
		}
		return fmt.Errorf("%s answered %d %s", base, status, http.StatusText(status))
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// send sends a request to the gateway at base and returns its answer.
func send(base string, req *http.Request) (status int, body []byte, err error) {
	way := egress.New(egress.DefaultPolicy(), egress.Options{})
	defer way.CloseIdleConnections()
	resp, err := way.Operator().RoundTrip(req)
	if err != nil {
		return 0, nil, fmt.Errorf("cannot reach a gateway at %s: %w; start the gateway, or name its address with --url or TURNPIKE_URL", base, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, body, err
}

// keyObject is a key as the management API shows it.
type keyObject struct {
	ID, Name, Role, Hint, Key string
	Declared                  bool
	PerMinute                 int    `json:"requests_per_minute"`
	Burst                     int    `json:"burst"`
	RevokedAt                 *int64 `json:"revoked_at"`

	Servers, Tools, Models nameList
	EndUsers               bool `json:"end_users"`
	ReadOnly               bool `json:"read_only"`
	Budgets                []keyBudget
	Context                *string
	MadeBy                 *string    `json:"made_by"`
	ExpiresAt              *time.Time `json:"expires_at"`
	PreviousUntil          *time.Time `json:"previous_until"`
	Unmatched              []struct {
		Setting string
		Names   []string
	}
}

// nameList is "*", which is nil, or a list.
type nameList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *nameList) UnmarshalJSON(data []byte) error {
	if string(data) == `"*"` {
		*l = nil
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// access says what the key may use; "all" for a key without limits.
func (k keyObject) access() string {
	var parts []string
	for _, one := range []struct {
		setting string
		names   nameList
	}{{"servers", k.Servers}, {"tools", k.Tools}, {"models", k.Models}} {
		switch {
		case one.names == nil:
		case len(one.names) == 0:
			parts = append(parts, one.setting+": none")
		default:
			parts = append(parts, one.setting+": "+strings.Join(one.names, ", "))
		}
	}
	if k.EndUsers {
		parts = append(parts, "end users")
	}
	if k.ReadOnly {
		parts = append(parts, "read only")
	}
	for _, b := range k.Budgets {
		if b.USD != "" {
			parts = append(parts, fmt.Sprintf("%s USD for each %s", b.USD, b.per()))
		}
		if b.Tokens > 0 {
			parts = append(parts, fmt.Sprintf("%d tokens for each %s", b.Tokens, b.per()))
		}
	}
	if k.Context != nil {
		parts = append(parts, "context: "+*k.Context)
	}
	if k.MadeBy != nil {
		parts = append(parts, "the budgets and hooks of "+*k.MadeBy)
	}
	if parts == nil {
		return "all"
	}
	return strings.Join(parts, "; ")
}

// expiresSoon is how long before its end a key is marked.
const expiresSoon = 7 * 24 * time.Hour

// expires says when the key ends, with a mark if that is soon.
func (k keyObject) expires(now time.Time) string {
	if k.ExpiresAt == nil {
		return "never"
	}
	text := k.ExpiresAt.UTC().Format(time.RFC3339)
	switch left := k.ExpiresAt.Sub(now); {
	case left <= 0:
		return text + " (expired)"
	case left <= expiresSoon:
		return text + " (soon)"
	}
	return text
}

// rate says how often the key may be used.
func (k keyObject) rate() string {
	switch {
	case k.PerMinute == 0:
		return "no limit"
	case k.Burst == 0:
		return fmt.Sprintf("%d a minute", k.PerMinute)
	}
	return fmt.Sprintf("%d a minute, %d at once", k.PerMinute, k.Burst)
}

func keysCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Create, list, update, rotate and revoke API keys on a running gateway",
		Long: `Create, list, update, rotate and revoke the API keys of an org over the management
API of a running gateway. Set TURNPIKE_KEY to a key with the role owner or admin. A
key can be named by its id or its name.`,
		Args: cobra.NoArgs,
	}
	m := remoteCommand(cmd, p)
	cmd.AddCommand(createKey(m), listKeys(m), updateKey(m), rotateKey(m), revokeKey(m), checkKeys(m))
	return cmd
}

// keyFlags are the settings of a key.
type keyFlags struct {
	role                   string
	perMinute, burst       int
	servers, tools, models []string
	endUsers, readOnly     bool
	budgets                []string
	expires                string
}

func (f *keyFlags) add(cmd *cobra.Command, role string) {
	cmd.Flags().StringVar(&f.role, "role", role, "role of the key: owner, admin, member, approver, reader or tools")
	cmd.Flags().IntVar(&f.perMinute, "requests-per-minute", 0, "rate limit of the key for all requests; 0 is no limit")
	cmd.Flags().IntVar(&f.perMinute, "rate", 0, "the same as --requests-per-minute")
	cmd.MarkFlagsMutuallyExclusive("rate", "requests-per-minute")
	cmd.Flags().IntVar(&f.burst, "burst", 0, "maximum number of requests at once; 0 is the same as --requests-per-minute")
	cmd.Flags().StringSliceVar(&f.servers, "servers", nil, `MCP servers that the key may use, with commas between them; '*' is all, "" is none`)
	cmd.Flags().StringSliceVar(&f.tools, "tools", nil, `globs over the tools that the key may use, such as 'search_*'; '*' is all, "" is none`)
	cmd.Flags().StringSliceVar(&f.models, "models", nil, `globs over the models that the key may ask for; '*' is all, "" is none`)
	cmd.Flags().BoolVar(&f.endUsers, "end-users", false, "model requests with the key must name their end user")
	cmd.Flags().BoolVar(&f.readOnly, "read-only", false, "the key may use only tools that read")
	cmd.Flags().StringSliceVar(&f.budgets, "budgets", nil, `limits on what the model calls of the key cost, such as 'day=20,month=300' in US dollars or 'day=50000tokens'; "" is none`)
	cmd.Flags().StringVar(&f.expires, "expires", "", "when the key stops working: a time such as 2027-01-31T18:00:00Z, a time from now such as 12h or 90d, or never")
}

// expiresAt returns the time that --expires names, as the API has it; nil for never.
func (f *keyFlags) expiresAt(now time.Time) (any, error) {
	if f.expires == "never" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339, f.expires); err == nil {
		return t.UTC().Format(time.RFC3339), nil
	}
	text, unit := f.expires, int64(1)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		text, unit = days+"h", 24
	}
	after, err := time.ParseDuration(text)
	if err != nil || after <= 0 || int64(after) > math.MaxInt64/unit {
		return nil, fmt.Errorf("--expires is %q: want a time such as 2027-01-31T18:00:00Z, a time from now such as 12h or 90d, or never", f.expires)
	}
	return now.Add(time.Duration(int64(after) * unit)).UTC().Format(time.RFC3339), nil
}

// given returns the settings that the command line names, as the API has them.
func (f *keyFlags) given(cmd *cobra.Command) (map[string]any, error) {
	all := map[string]any{}
	for flag, v := range map[string]any{
		"role": f.role, "requests-per-minute": f.perMinute, "rate": f.perMinute, "burst": f.burst,
		"servers": listGiven(f.servers), "tools": listGiven(f.tools), "models": listGiven(f.models), "end-users": f.endUsers, "read-only": f.readOnly,
	} {
		if cmd.Flags().Changed(flag) {
			all[strings.ReplaceAll(flag, "-", "_")] = v
		}
	}
	if v, ok := all["rate"]; ok {
		delete(all, "rate")
		all["requests_per_minute"] = v
	}
	if cmd.Flags().Changed("budgets") {
		budgets, err := budgetsGiven(f.budgets)
		if err != nil {
			return nil, err
		}
		all["budgets"] = budgets
	}
	if cmd.Flags().Changed("expires") {
		at, err := f.expiresAt(time.Now())
		if err != nil {
			return nil, err
		}
		all["expires_at"] = at
	}
	return all, nil
}

// listGiven returns a list of the command line as the API has it.
func listGiven(names []string) any {
	if slices.Equal(names, []string{"*"}) {
		return "*"
	}
	return append([]string{}, names...)
}

func createKey(m *remote) *cobra.Command {
	var settings keyFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a key and print it; it cannot be shown again",
		Example: `  turnpike keys create ci --role member --rate 600
  turnpike keys create editor --role tools --tools 'search_*,read' --expires 90d
  turnpike keys create app --servers docs --tools 'search_*,read' --models 'gpt-*' --expires 90d`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := settings.given(cmd)
			if err != nil {
				return err
			}
			if asked["expires_at"] == nil {
				delete(asked, "expires_at")
			}
			asked["name"], asked["role"] = args[0], settings.role
			var made keyObject
			if err := m.call(cmd.Context(), http.MethodPost, "/api/keys", asked, &made); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), plain(made.Key))
			fmt.Fprintf(cmd.ErrOrStderr(), "created %s with the role %s; the key is not shown again\n", plain(made.ID), plain(made.Role))
			return nil
		},
	}
	settings.add(cmd, "member")
	return cmd
}

func updateKey(m *remote) *cobra.Command {
	var settings keyFlags
	var name string
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Change the settings of a key, effective immediately",
		Long: `Change the settings of a key, effective immediately. ID is the id or the name of
the key. Only the settings that a flag names are changed. The key itself stays the
same. Keys of the configuration file can only be changed there.`,
		Example: `  turnpike keys update ci --role reader
  turnpike keys update key_01kb… --rate 60 --burst 10
  turnpike keys update app --servers docs --tools '*'`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked, err := settings.given(cmd)
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("name") {
				asked["name"] = name
			}
			if asked["requests_per_minute"] == 0 && asked["burst"] == nil {
				asked["burst"] = 0 // without a limit there is no burst
			}
			if len(asked) == 0 {
				return errors.New("nothing to change: use --role, --rate, --burst, --servers, --tools, --models, --end-users, --read-only, --budgets, --expires or --name")
			}
			var now keyObject
			if err := m.call(cmd.Context(), http.MethodPatch, "/api/keys/"+url.PathEscape(args[0]), asked, &now); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "updated %s: name %s, role %s, rate limit: %s, may use: %s, expires: %s\n",
				plain(now.ID), plain(now.Name), plain(now.Role), now.rate(), plain(now.access()), now.expires(time.Now()))
			return nil
		},
	}
	settings.add(cmd, "")
	cmd.Flags().StringVar(&name, "name", "", "name of the key, for people")
	return cmd
}

// keys returns all keys of the org, page by page.
func (m *remote) keys(ctx context.Context) (all []keyObject, err error) {
	for path := "/api/keys"; ; {
		var page struct {
			Data []keyObject
			Next string
		}
		if err := m.call(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if page.Next == "" {
			return all, nil
		}
		path = "/api/keys?after=" + url.QueryEscape(page.Next)
	}
}

func listKeys(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys of the org",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := m.keys(cmd.Context())
			if err != nil {
				return err
			}
			t := newTable(cmd.OutOrStdout(), "ID", "NAME", "ROLE", "RATE LIMIT", "MAY USE", "KEY", "EXPIRES", "STATE")
			for _, k := range all {
				t.row(k.ID, k.Name, k.Role, k.rate(), k.access(), k.Hint, k.expires(time.Now()), k.state())
			}
			return t.flush()
		},
	}
}

func checkKeys(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Check the active keys of the org",
		Long: `Check the active keys of the org. It names the servers, tools and models in their
lists that do not exist, which allow nothing, keys that have expired or will within 7
days, and names that two keys have. Tools are checked when their servers have listed
them. The exit status is 1 if there is something to correct.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := m.keys(cmd.Context())
			if err != nil {
				return err
			}
			active := slices.DeleteFunc(all, func(k keyObject) bool { return k.RevokedAt != nil })
			findings, names := 0, map[string]string{}
			for _, k := range active {
				lines := k.findings(time.Now())
				if other := names[k.Name]; other != "" && k.Name != "" {
					lines = append(lines, "the key "+other+" has the same name")
				}
				names[k.Name] = k.ID
				for _, line := range lines {
					fmt.Fprintf(cmd.OutOrStdout(), "%s (%s): %s\n", plain(k.Name), plain(k.ID), plain(line))
				}
				findings += len(lines)
			}
			if findings > 0 {
				return fmt.Errorf("%d findings in %d active keys", findings, len(active))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d active keys, nothing to correct\n", len(active))
			return nil
		},
	}
}

// findings returns what is to be corrected in the key.
func (k keyObject) findings(now time.Time) (lines []string) {
	for _, l := range k.Unmatched {
		lines = append(lines, fmt.Sprintf("%s: there is no %s", l.Setting, strings.Join(l.Names, ", no ")))
	}
	if k.ExpiresAt != nil && k.ExpiresAt.Sub(now) <= expiresSoon {
		lines = append(lines, "expires: "+k.expires(now))
	}
	return lines
}

func (k keyObject) state() string {
	switch {
	case k.RevokedAt != nil:
		return "revoked " + time.Unix(*k.RevokedAt, 0).UTC().Format(time.DateTime)
	case k.Declared:
		return "declared in the file"
	case k.PreviousUntil != nil:
		return "active; the old secret works until " + k.PreviousUntil.UTC().Format(time.DateTime)
	}
	return "active"
}

func rotateKey(m *remote) *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a key a new secret and print it; it cannot be shown again",
		Long: `Give a key a new secret and print it; it cannot be shown again. ID is the id or the
name of the key. The old secret works for the time --overlap, so that clients can
change to the new one. Everything else of the key stays the same.`,
		Example: "  turnpike keys rotate app --overlap 24h",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			var now keyObject
			asked := map[string]any{"overlap": overlap.String()}
			if err := m.call(cmd.Context(), http.MethodPost, "/api/keys/"+url.PathEscape(args[0])+"/rotate", asked, &now); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), plain(now.Key))
			old := "the old one has stopped working"
			if now.PreviousUntil != nil {
				old = "the old one works until " + now.PreviousUntil.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has a new secret, which is not shown again; %s\n", plain(now.ID), old)
			return nil
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "how long the old secret still works, such as 24h; 0 ends it at once")
	return cmd
}

func revokeKey(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a key, effective immediately",
		Long:  `Revoke a key, effective immediately. ID is the id or the name of the key.`,
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.call(cmd.Context(), http.MethodDelete, "/api/keys/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is revoked\n", plain(args[0]))
			return nil
		},
	}
}

// keyBudget is a budget of a key, as the management API has it.
type keyBudget struct {
	Period string      `json:"period"`
	USD    json.Number `json:"usd,omitempty"`
	Tokens int64       `json:"tokens,omitempty"`
}

// per returns how long the budget lasts.
func (b keyBudget) per() string {
	if b.Period == "total" {
		return "life of the key"
	}
	return b.Period
}

// budgetsGiven returns the budgets of the command line as the API has them. A period may be given
// twice: once with US dollars, and once with tokens.
func budgetsGiven(texts []string) ([]keyBudget, error) {
	all := []keyBudget{}
	for _, text := range texts {
		period, limit, ok := strings.Cut(strings.TrimSpace(text), "=")
		if !ok {
			return nil, fmt.Errorf("--budgets: %q is no budget; want PERIOD=LIMIT such as day=20 (US dollars) or month=50000tokens", text)
		}
		i := slices.IndexFunc(all, func(b keyBudget) bool { return b.Period == period })
		if i < 0 {
			i, all = len(all), append(all, keyBudget{Period: period})
		}
		if tokens, is := strings.CutSuffix(limit, "tokens"); is {
			n, err := strconv.ParseInt(strings.TrimSpace(tokens), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("--budgets: %q: want a whole number before tokens", text)
			}
			all[i].Tokens = n
			continue
		}
		if _, err := money.ParseUSD(limit); err != nil {
			return nil, fmt.Errorf("--budgets: %q: want US dollars such as 20 or 0.5, or a number of tokens such as 50000tokens", text)
		}
		all[i].USD = json.Number(limit)
	}
	return all, nil
}
