package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
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
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
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
	cmd.AddCommand(listMCP(p, &from), checkMCP(p, &from))
	return cmd
}

// servers returns the org and its servers: those of the file, then those that are
// stored, if a gateway has stored any.
func (s *readStore) servers(ctx context.Context, p Process) (c *config.Config, orgID string, all []org.MCPServer, err error) {
	if c, err = s.config(p); err != nil {
		return nil, "", nil, err
	}
	var known orgReader
	store, err := sqlite.OpenReader(ctx, filepath.Join(s.directory(c), app.DatabaseFile))
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
	for _, o := range c.Orgs {
		if o.ID == orgID {
			all = append(all, directory.DeclaredServers(o)...)
		}
	}
	if known == nil {
		return c, orgID, all, nil
	}
	stored, err := store.MCPServers(ctx, orgID)
	return c, orgID, append(all, stored...), err
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
				if !s.Declared {
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
require_approval names.`,
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
			keys, err := c.Keyring(cmd.Context(), resolver)
			if err != nil {
				return err
			}
			way := egress.New(app.OutboundPolicy(c.Outbound.SSRF), egress.Options{})
			defer way.CloseIdleConnections()
			pool := mcppool.New(mcppool.Options{
				Out: way, Secrets: resolver, Vaults: vaultsOnDisk(keys, from.directory(c)), Refused: directory.RefusedServer, Log: slog.New(slog.DiscardHandler),
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
	if offered == 0 {
		return fmt.Errorf("server %s offers no tools", s.Name)
	}
	if names := mcppool.ApprovalRule(s.RequireApproval).Unmatched(lists(report)); len(names) > 0 {
		return fmt.Errorf("server %s: require_approval names tools that the server does not have: %s. Until this is corrected, all tools that no rule names need approval, unless they are known to only read",
			plain(s.Name), plain(strings.Join(names, ", ")))
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
	for _, m := range misnamed(s, report) {
		fmt.Fprintf(out, "  missing   %s\n", m)
	}
	fmt.Fprintf(out, "%d tools offered\n", offered)
	return offered
}

// misnamed returns the names in the server's lists that it has no tool for: it
// may not have them yet, or they are slips.
func misnamed(s org.MCPServer, report mcptool.Report) (out []string) {
	has := func(name string) bool {
		return slices.ContainsFunc(report.Tools, func(t tool.Definition) bool { return t.Name == name }) ||
			slices.ContainsFunc(report.LeftOut, func(l mcptool.LeftOut) bool { return l.Name == name })
	}
	for _, list := range []struct {
		key   string
		names []string
	}{{"tools", s.Tools}, {"polling", s.Polling}, {"reads", s.Reads}, {"keyed", s.Keyed}, {"hosted", slices.Sorted(maps.Values(s.HostedTools()))}, {"cache", s.Cache.Names}, {"require_approval.always", named(s.RequireApproval.Always)}, {"require_approval.never", named(s.RequireApproval.Never)}} {
		for _, name := range list.names {
			if !has(name) {
				out = append(out, fmt.Sprintf("%s: %s names it, and the server has no such tool", plain(name), list.key))
			}
		}
	}
	return out
}

func named(f *org.ToolFilter) []string {
	if f == nil {
		return nil
	}
	return f.ToolNames
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return plain(line)
}

// vaultsOnDisk are the vaults of a gateway that may be running. The file is
// opened for each look: a command has few.
func vaultsOnDisk(keys *secret.Keyring, data string) mcppool.Vaults {
	return mcppool.Vaults{Keys: keys, Read: func(ctx context.Context, orgID, name string) (org.Secret, error) {
		store, err := sqlite.OpenReader(ctx, filepath.Join(data, app.DatabaseFile))
		if err != nil {
			return org.Secret{}, err
		}
		defer store.Close()
		return store.Secret(ctx, orgID, name)
	}}
}
