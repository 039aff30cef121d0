package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/egress"
)

// remote is a running gateway, spoken to over its management API: the process
// that serves is the only one that writes its store.
type remote struct {
	url, key string
}

// flags adds what says where the gateway is.
func (m *remote) flags(cmd *cobra.Command, p Process) {
	base, _ := p.Env("TURNPIKE_URL")
	if base == "" {
		base = "http://127.0.0.1:8080"
	}
	cmd.PersistentFlags().StringVar(&m.url, "url", base, "`URL` of the running gateway (environment: TURNPIKE_URL)")
	m.key, _ = p.Env("TURNPIKE_KEY")
}

// call sends a request and decodes the answer into out, unless that is nil.
func (m *remote) call(ctx context.Context, method, path string, in, out any) error {
	if m.key == "" {
		return errors.New("no key: set TURNPIKE_KEY to a key with the role owner or admin")
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(m.url, "/")+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+m.key)
	req.Header.Set("Content-Type", "application/json")
	status, data, err := send(m.url, req)
	if err != nil {
		return err
	}
	if status >= 300 {
		var failed struct {
			Error struct{ Message string }
		}
		if json.Unmarshal(data, &failed) == nil && failed.Error.Message != "" {
			return errors.New(failed.Error.Message)
		}
		return fmt.Errorf("%s answered %d %s", m.url, status, http.StatusText(status))
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
		return 0, nil, fmt.Errorf("no gateway answers at %s: %w", base, err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return resp.StatusCode, body, err
}

// keyObject is a key as the management API shows it.
type keyObject struct {
	ID, Name, Role, Hint, Key string
	Declared                  bool
	RevokedAt                 *int64 `json:"revoked_at"`
}

func keysCommand(p Process) *cobra.Command {
	var m remote
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Create, list and revoke API keys on a running gateway",
		Long: `Create, list and revoke the API keys of an org over the management API of a
running gateway. Set TURNPIKE_KEY to a key with the role owner or admin.`,
		Args: cobra.NoArgs,
	}
	m.flags(cmd, p)
	cmd.AddCommand(createKey(&m), listKeys(&m), revokeKey(&m))
	return cmd
}

func createKey(m *remote) *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:     "create NAME",
		Short:   "Create a key and print it; it cannot be shown again",
		Example: "  turnpike keys create ci --role member",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var made keyObject
			if err := m.call(cmd.Context(), http.MethodPost, "/api/keys", map[string]string{"name": args[0], "role": role}, &made); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), plain(made.Key))
			fmt.Fprintf(cmd.ErrOrStderr(), "created %s with the role %s; the key is not shown again\n", plain(made.ID), plain(made.Role))
			return nil
		},
	}
	cmd.Flags().StringVar(&role, "role", "member", "role of the key: owner, admin, member, approver or reader")
	return cmd
}

func listKeys(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the keys of the org",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all struct{ Data []keyObject }
			if err := m.call(cmd.Context(), http.MethodGet, "/api/keys", nil, &all); err != nil {
				return err
			}
			t := newTable(cmd.OutOrStdout(), "ID", "NAME", "ROLE", "KEY", "STATE")
			for _, k := range all.Data {
				t.row(k.ID, k.Name, k.Role, k.Hint, k.state())
			}
			return t.flush()
		},
	}
}

func (k keyObject) state() string {
	switch {
	case k.RevokedAt != nil:
		return "revoked " + time.Unix(*k.RevokedAt, 0).UTC().Format(time.DateTime)
	case k.Declared:
		return "declared in the file"
	}
	return "active"
}

func revokeKey(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "Revoke a key, effective immediately",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.call(cmd.Context(), http.MethodDelete, "/api/keys/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is revoked\n", plain(args[0]))
			return nil
		},
	}
}
