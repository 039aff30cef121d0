package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// secretObject is an entry of the vault as the management API shows it.
type secretObject struct {
	Name      string
	CreatedAt int64 `json:"created_at"`
	UpdatedAt int64 `json:"updated_at"`
}

func secretsCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets",
		Short: "Store, list and delete secrets on a running gateway",
		Long: `Store, list and delete the secrets of an org over the management API of a running
gateway. A header of an MCP server refers to a secret as "Bearer secret:NAME". Set
TURNPIKE_KEY to a key of the org with the role owner or admin.`,
		Args: cobra.NoArgs,
	}
	m := remoteCommand(cmd, p)
	cmd.AddCommand(setSecret(m), listSecrets(m), deleteSecret(m))
	return cmd
}

func setSecret(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "set NAME",
		Short: "Store or replace a secret, read from standard input",
		Long: `Store a secret of one line, at most 64 KiB, read from standard input. It does not
appear in the arguments or the shell history. The final line break is removed. The
value cannot be read back.`,
		Example: "  turnpike secrets set gh_token < token.txt",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			value, err := readValue(cmd.InOrStdin())
			if err != nil {
				return err
			}
			if err := m.call(cmd.Context(), http.MethodPut, secretPath(args[0]), map[string]string{"value": value.Reveal()}, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is stored; refer to it as secret:%s\n", plain(args[0]), plain(args[0]))
			return nil
		},
	}
}

// readValue reads a secret without the line break at its end.
func readValue(in io.Reader) (secret.Value, error) {
	data, err := io.ReadAll(io.LimitReader(in, secret.MaxSize+3)) // a full-size one, a line break, and one byte to tell
	if err != nil {
		return secret.Value{}, fmt.Errorf("standard input: %w", err)
	}
	text, cut := strings.CutSuffix(string(data), "\n")
	if cut {
		text = strings.TrimSuffix(text, "\r")
	}
	v := secret.NewValue(text)
	if err := v.Check(); err != nil {
		return secret.Value{}, fmt.Errorf("the secret on standard input %w", err)
	}
	return v, nil
}

func listSecrets(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the names of the org's secrets",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all struct{ Data []secretObject }
			if err := m.call(cmd.Context(), http.MethodGet, "/api/secrets", nil, &all); err != nil {
				return err
			}
			t := newTable(cmd.OutOrStdout(), "NAME", "CREATED (UTC)", "UPDATED (UTC)")
			for _, s := range all.Data {
				t.row(s.Name, dateTime(s.CreatedAt), dateTime(s.UpdatedAt))
			}
			return t.flush()
		},
	}
}

func deleteSecret(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a secret; requests to servers that refer to it then fail",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.call(cmd.Context(), http.MethodDelete, secretPath(args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", plain(args[0]))
			return nil
		},
	}
}

func secretPath(name string) string { return "/api/secrets/" + url.PathEscape(name) }

func dateTime(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.DateTime) }
