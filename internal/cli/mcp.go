package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/spelling"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/tool"
)

func mcpCommand(p Process) *cobra.Command {
	var from readStore
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "List and test the MCP servers of an org",
		Args:  cobra.NoArgs,
	}
	from.flags(cmd)
	cmd.AddCommand(listMCP(p, &from), checkMCP(p, &from), switchMCP(p, &from, true), switchMCP(p, &from, false))
	return cmd
}

// switchMCP returns the command that switches a server of the org on or off.
func switchMCP(p Process, from *readStore, on bool) *cobra.Command {
	word, effect := "disable", "No request uses it any more, effective immediately"
	if on {
		word, effect = "enable", "The next request uses it"
	}
	m := &remote{own: from}
	cmd := &cobra.Command{
		Use:   word + " NAME",
		Short: fmt.Sprintf("%s%s an MCP server of the org on a running gateway", strings.ToUpper(word[:1]), word[1:]),
		Long: fmt.Sprintf(`%s%s an MCP server of the org over the management API of a running gateway.
%s. Also for servers that the
configuration file shares among orgs; other servers of the file can only be changed
there. Set TURNPIKE_KEY to a key with the role owner or admin.`, strings.ToUpper(word[:1]), word[1:], effect),
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.call(cmd.Context(), http.MethodPatch, "/api/mcp-servers/"+url.PathEscape(args[0]), map[string]any{"enabled": on}, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is %sd\n", plain(args[0]), word)
			return nil
		},
	}
	m.flags(cmd, p)
	return cmd
}

// servers returns the org and its servers: those of the file, then those that are
// stored, if a gateway has stored any.
func (s *readStore) servers(ctx context.Context, p Process) (c *config.Config, orgID string, all []org.MCPServer, err error) {
	if c, err = s.config(p); err != nil {
		return nil, "", nil, err
	}
	if s.data != "" { // whatever the configuration says of a database
		c.Database = secret.Text{}
	}
	var known orgReader
	store, err := openStored(ctx, c, secret.NewResolver(p.Env), s.directory(c))
	switch {
	case err == nil:
		defer store.Close()
		known = store
	case !errors.Is(err, fs.ErrNotExist):
		return nil, "", nil, err
	}
	if orgID, err = s.oneOrg(ctx, p, known); err != nil {
		return nil, "", nil, err
	}
	all = directory.FromFile(c, &config.Secrets{}).Of(orgID).Servers
	if known == nil {
		return c, orgID, all, nil
	}
	off, err := store.ServersOff(ctx, orgID)
	if err != nil {
		return nil, "", nil, err
	}
	stored, err := store.MCPServers(ctx, orgID)
	return c, orgID, append(org.WithSwitches(all, off), stored...), err
}

// directory is where the gateway of the configuration keeps its data.
func (s *readStore) directory(c *config.Config) string {
	if s.data != "" {
		return s.data
	}
	return c.Data
}

func listMCP(p Process, from *readStore) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the MCP servers of the org",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, _, all, err := from.servers(cmd.Context(), p)
			if err != nil {
				return err
			}
			t := newTable(cmd.OutOrStdout(), "NAME", "ENABLED", "WHERE", "TOOLS", "FROM")
			for _, s := range all {
				tools, where, origin := "all", s.URL, "the file"
				if s.Tools != nil {
					tools = strings.Join(s.Tools, ",")
				}
				if where == "" {
					where = strings.Join(s.Command, " ")
				}
				switch {
				case s.Shared:
					origin = "the file (shared)"
				case !s.FromFile:
					origin = "the API"
				}
				t.row(s.Name, s.Enabled, where, tools, origin)
			}
			return t.flush()
		},
	}
}

func checkMCP(p Process, from *readStore) *cobra.Command {
	return &cobra.Command{
		Use:   "check NAME",
		Short: "Connect to an MCP server and list its tools, including those left out and why",
		Long: `Connect to an MCP server as the gateway does, with the configured headers and the
outbound policy, list its tools, and say which calls need approval. The exit status is
1 if the server cannot be reached, has no usable tools, or lacks a tool that
one of its settings names.`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, orgID, all, err := from.servers(cmd.Context(), p)
			if err != nil {
				return err
			}
			i := slices.IndexFunc(all, func(s org.MCPServer) bool { return s.Name == args[0] })
			if i < 0 {
				return fmt.Errorf("the org %s has no MCP server called %q", orgID, args[0])
			}
			resolver := secret.NewResolver(p.Env)
			keys, err := vaultKeys(cmd.Context(), c, resolver, from.directory(c))
			if err != nil {
				return err
			}
			stored := func(ctx context.Context) (*database.Reader, error) {
				return openStored(ctx, c, resolver, from.directory(c))
			}
			way := egress.New(app.OutboundPolicy(c.Outbound.SSRF), egress.Options{})
			defer way.CloseIdleConnections()
			pool := mcppool.New(mcppool.Options{
				Out: way, Secrets: resolver, Vaults: storedVaults(keys, stored), Refused: directory.RefusedServer, Log: slog.New(slog.DiscardHandler),
			})
			return checkServer(cmd.Context(), cmd.OutOrStdout(), pool, all[i])
		},
	}
}

func checkServer(ctx context.Context, out io.Writer, pool *mcppool.Pool, s org.MCPServer) error {
	client := pool.Connect(s)
	defer client.Close()
	report, err := client.Check(ctx)
	var blocked *egress.BlockedError
	if errors.As(err, &blocked) {
		return fmt.Errorf("server %s: the outbound policy refuses %s: %s%s", plain(s.Name), plain(s.URL), blocked.Reason, cmp.Or(directory.AllowedBy(blocked), "; correct the server's URL"))
	}
	if err != nil {
		return fmt.Errorf("server %s: %w", s.Name, err)
	}
	fmt.Fprintf(out, "%s is up: %s %s over %s", plain(s.Name), plain(report.ServerName), plain(report.ServerVersion), report.Transport)
	if report.Protocol != "" {
		fmt.Fprintf(out, ", protocol %s", plain(report.Protocol))
	}
	fmt.Fprintln(out)
	offered := printTools(out, s, report)
	if err := misnamedTools(s, report); err != nil {
		return err
	}
	if offered == 0 {
		return fmt.Errorf("server %s offers no tools", s.Name)
	}
	return nil
}

// lists returns a function that reports whether the server has a valid tool of a name.
func lists(report mcptool.Report) func(name string) bool {
	valid := map[string]bool{}
	for _, t := range report.Tools {
		if _, err := catalog.Usable(t); err == nil {
			valid[t.Name] = true
		}
	}
	return func(name string) bool { return valid[name] }
}

// approvalMark says whether calls of a tool wait for approval; "" if no rule of the server asks.
func approvalMark(s org.MCPServer, t tool.Definition, has func(string) bool) string {
	rule := mcppool.ApprovalRule(s.RequireApproval)
	reads := s.Trust && t.Annotations.ReadOnly != nil && *t.Annotations.ReadOnly
	switch {
	case rule.AsksNever():
		return ""
	case rule.Asks(t.Name, reads, has):
		return "needs approval  "
	}
	return "no approval     "
}

// printTools says of every tool whether runs get it, and returns how many do.
func printTools(out io.Writer, s org.MCPServer, report mcptool.Report) (offered int) {
	has := lists(report)
	for _, t := range report.Tools {
		usable, err := catalog.Usable(t)
		switch {
		case err != nil:
			fmt.Fprintf(out, "  left out  %s: %s\n", plain(t.Name), plain(err.Error()))
		case s.Tools != nil && !slices.Contains(s.Tools, t.Name):
			fmt.Fprintf(out, "  left out  %s: the setting tools does not name it\n", plain(t.Name))
		default:
			offered++
			fmt.Fprintf(out, "  offered   %s  %s%s\n", plain(t.Name), approvalMark(s, t, has), firstLine(usable.Description))
		}
	}
	for _, l := range report.LeftOut {
		fmt.Fprintf(out, "  left out  %s: %s\n", plain(l.Name), plain(l.Reason))
	}
	for _, l := range misnamed(s, report) {
		for _, name := range l.Names {
			fmt.Fprintf(out, "  missing   %s: %s names it, and the server has no such tool%s\n", plain(name), l.Setting, plain(meant(name, report)))
		}
	}
	fmt.Fprintf(out, "%d tools offered\n", offered)
	return offered
}

// misnamed returns the names in the server's settings that it has no tool for.
func misnamed(s org.MCPServer, report mcptool.Report) []org.ToolList {
	rule := s.RequireApproval
	lists := append(s.ToolLists(), org.ToolList{Setting: "require_approval.always", Names: named(rule.Always)},
		org.ToolList{Setting: "require_approval.never", Names: named(rule.Never)})
	listed := listedNames(report)
	return org.Unmatched(lists, func(name string) bool { return slices.Contains(listed, name) })
}

// listedNames returns the names of all tools that the server lists, also of those left out.
func listedNames(report mcptool.Report) (names []string) {
	for _, t := range report.Tools {
		names = append(names, t.Name)
	}
	for _, l := range report.LeftOut {
		names = append(names, l.Name)
	}
	return names
}

func named(f *org.ToolFilter) []string {
	if f == nil {
		return nil
	}
	return f.ToolNames
}

// misnamedTools returns an error if a setting names a tool that the server does not have, or if a
// rule for approvals names one that runs cannot use.
func misnamedTools(s org.MCPServer, report mcptool.Report) error {
	var slips []string
	for _, l := range misnamed(s, report) {
		names := make([]string, len(l.Names))
		for i, name := range l.Names {
			names[i] = plain(name + meant(name, report))
		}
		slips = append(slips, fmt.Sprintf("%s names tools that the server does not have: %s", l.Setting, strings.Join(names, ", ")))
	}
	names := mcppool.ApprovalRule(s.RequireApproval).Unmatched(lists(report))
	if len(slips) == 0 && len(names) > 0 {
		slips = []string{"require_approval names tools that cannot be used: " + plain(strings.Join(names, ", "))}
	}
	if len(slips) == 0 {
		return nil
	}
	effect := ""
	if len(names) > 0 {
		effect = ". Until require_approval is corrected, all tools that no rule names need approval, unless they are known to only read"
	}
	return fmt.Errorf("server %s: %s%s", plain(s.Name), strings.Join(slips, "; "), effect)
}

// meant names the tool of the server that a misspelt name probably means; "" if none is similar.
func meant(name string, report mcptool.Report) string {
	if nearest := spelling.Nearest(name, listedNames(report)); nearest != "" {
		return " (did you mean " + nearest + "?)"
	}
	return ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return plain(line)
}

// storedVaults are the vaults of a gateway that may be running. Its store is
// opened for each look: a command has few.
func storedVaults(keys *secret.Keyring, open func(context.Context) (*database.Reader, error)) mcppool.Vaults {
	return mcppool.Vaults{Keys: keys, Read: func(ctx context.Context, orgID, name string) (org.Secret, error) {
		store, err := open(ctx)
		if err != nil {
			return org.Secret{}, err
		}
		defer store.Close()
		return store.Secret(ctx, orgID, name)
	}}
}
