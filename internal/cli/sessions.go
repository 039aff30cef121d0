package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func sessionsCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List, show and remove sessions of agents on a running gateway",
		Long: `List, show and remove the sessions of agents over the API of a running gateway. Set
TURNPIKE_KEY to a key with the role owner, admin or member; list, get and messages also
work with reader. Members see the sessions of their key.`,
		Args: cobra.NoArgs,
	}
	m := remoteCommand(cmd, p)
	cmd.AddCommand(listSessions(m), getSession(m), sessionMessages(m), removeSessions(m))
	return cmd
}

func sessionPath(id string) string { return "/api/sessions/" + url.PathEscape(id) }

func listSessions(m *remote) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "list AGENT",
		Short: "List the sessions of an agent, the latest updated first; AGENT is its name or id",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := m.agentID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var page struct {
				Sessions []struct {
					ID, Status, Title string
					Runs              int     `json:"run_count"`
					Stop              *string `json:"stop_reason"`
					Updated           string  `json:"updated_at"`

					Active float64     `json:"active_seconds"`
					Cost   json.Number `json:"cost_usd"`
				}
			}
			if err := m.call(cmd.Context(), http.MethodGet, fmt.Sprintf("%s/sessions?limit=%d", agentPath(id), limit), nil, &page); err != nil {
				return err
			}
			t := newTable(cmd.OutOrStdout(), "ID", "STATUS", "RUNS", "ACTIVE", "COST USD", "UPDATED", "TITLE")
			for _, s := range page.Sessions {
				status := s.Status
				if s.Stop != nil {
					status += " (" + *s.Stop + ")"
				}
				t.row(s.ID, status, s.Runs, fmt.Sprintf("%.1f s", s.Active), s.Cost, s.Updated, s.Title)
			}
			return t.flush()
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "list at most this `NUMBER`, up to 200")
	return cmd
}

func getSession(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Print a session as JSON",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			var s json.RawMessage
			if err := m.call(cmd.Context(), http.MethodGet, sessionPath(args[0]), nil, &s); err != nil {
				return err
			}
			var text bytes.Buffer
			if err := json.Indent(&text, s, "", "  "); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), escaped(text.String()))
			return err
		},
	}
}

// messagesPage is how many messages are asked for at once.
const messagesPage = 200

func sessionMessages(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "messages ID",
		Short: "Print what was said in a session, the oldest first",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			for offset := 0; ; offset += messagesPage {
				var page struct {
					Messages []struct {
						Role, Content string
						Calls         []struct{ Name, Arguments string } `json:"tool_calls"`
					}
				}
				if err := m.call(cmd.Context(), http.MethodGet, fmt.Sprintf("%s/messages?limit=%d&offset=%d", sessionPath(args[0]), messagesPage, offset), nil, &page); err != nil {
					return err
				}
				for _, one := range page.Messages {
					text := one.Content
					for _, c := range one.Calls {
						text = strings.TrimSpace(text + " → " + c.Name + " " + c.Arguments)
					}
					if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", plain(one.Role), plain(text)); err != nil {
						return err
					}
				}
				if len(page.Messages) < messagesPage {
					return nil
				}
			}
		},
	}
}

func removeSessions(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "rm ID…",
		Short: "Delete sessions with their runs",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, id := range args {
				if err := m.call(cmd.Context(), http.MethodDelete, sessionPath(id), nil, nil); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", plain(id)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
