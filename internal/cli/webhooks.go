package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// webhookObject is a webhook as the management API shows it.
type webhookObject struct {
	Name          string     `json:"name"`
	Declared      bool       `json:"declared"`
	URL           string     `json:"url"`
	Events        []string   `json:"events"`
	Enabled       bool       `json:"enabled"`
	Stopped       string     `json:"stopped,omitempty"`
	Secret        string     `json:"secret,omitempty"`
	PreviousUntil *time.Time `json:"previous_until,omitempty"`
	Waiting       int        `json:"waiting"`
	OldestWaiting *time.Time `json:"oldest_waiting"`
	GivenUp       int64      `json:"given_up"`
	CreatedAt     int64      `json:"created_at"`
	UpdatedAt     int64      `json:"updated_at"`
}

// deliveryObject is a message as the management API shows it.
type deliveryObject struct {
	ID            string     `json:"id"`
	Event         string     `json:"event"`
	Object        string     `json:"object_id"`
	At            time.Time  `json:"at"`
	Outcome       string     `json:"outcome"`
	Attempts      int        `json:"attempts"`
	NextAttemptAt *time.Time `json:"next_attempt_at"`
	EndedAt       *time.Time `json:"ended_at"`
	Status        *int       `json:"status"`
	Error         string     `json:"error,omitempty"`
}

func webhooksCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "webhooks",
		Short: "Add, list, update, rotate and remove webhooks on a running gateway",
		Long: `Add, list, update, rotate and remove the webhooks of an org over the management API of
a running gateway, list the messages that it sends, and send them again. Set TURNPIKE_KEY
to a key with the role owner or admin.`,
		Args: cobra.NoArgs,
	}
	m := remoteCommand(cmd, p)
	cmd.AddCommand(addWebhook(m), listWebhooks(m), updateWebhook(m), rotateWebhook(m), removeWebhook(m), testWebhook(m),
		listDeliveries(m), redeliver(m))
	return cmd
}

func webhookPath(name string) string { return "/api/webhooks/" + url.PathEscape(name) }

const eventsUsage = "`EVENTS` to send, with commas between them, such as run.waiting or 'response.*'; '*' is all"

func addWebhook(m *remote) *cobra.Command {
	var events []string
	cmd := &cobra.Command{
		Use:   "add NAME URL",
		Short: "Add a webhook and print its secret; it cannot be shown again",
		Long: `Add a webhook and print its secret; it cannot be shown again. The receiver verifies the
signature of each message with it. The events are ` + strings.Join(org.WebhookEvents(), ", ") + `.`,
		Example: `  turnpike webhooks add ops https://example.com/hooks --events 'run.waiting,budget.*'`,
		Args:    twoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var w webhookObject
			asked := map[string]any{"name": args[0], "url": args[1], "events": events}
			if err := m.call(cmd.Context(), http.MethodPost, "/api/webhooks", asked, &w); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), plain(w.Secret))
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is added; store its secret with the receiver, it is not shown again\n", plain(w.Name))
			return nil
		},
	}
	cmd.Flags().StringSliceVar(&events, "events", []string{"*"}, eventsUsage)
	return cmd
}

// twoArgs is the Args of commands that take two arguments.
func twoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return fmt.Errorf("%s takes 2 arguments, not %d: write %s", cmd.CommandPath(), len(args), strings.TrimSuffix(cmd.UseLine(), " [flags]"))
}

func listWebhooks(m *remote) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the org's webhooks, and how many messages wait",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var all struct{ Data []webhookObject }
			if err := m.call(cmd.Context(), http.MethodGet, "/api/webhooks", nil, &all); err != nil {
				return err
			}
			if asJSON {
				return printEach(cmd, all.Data)
			}
			t := newTable(cmd.OutOrStdout(), "NAME", "EVENTS", "STATE", "WAITING", "OLDEST (UTC)", "GIVEN UP", "URL")
			for _, w := range all.Data {
				state, oldest := "enabled", "-"
				if !w.Enabled {
					state = w.Stopped
				}
				if w.OldestWaiting != nil {
					oldest = w.OldestWaiting.UTC().Format(time.DateTime)
				}
				t.row(w.Name, strings.Join(w.Events, ","), state, w.Waiting, oldest, w.GivenUp, w.URL)
			}
			return t.flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table")
	return cmd
}

// printEach prints each value as a line of JSON.
func printEach[T any](cmd *cobra.Command, all []T) error {
	for _, one := range all {
		if err := printJSON(cmd.OutOrStdout(), one); err != nil {
			return err
		}
	}
	return nil
}

func updateWebhook(m *remote) *cobra.Command {
	var to string
	var events []string
	var enabled bool
	cmd := &cobra.Command{
		Use:   "update NAME",
		Short: "Change the URL or the events of a webhook, or enable or disable it",
		Long: `Change the URL or the events of a webhook, or enable or disable it. What you do not
name stays the same. Disabling gives up the messages that wait.`,
		Example: `  turnpike webhooks update ops --events '*'
  turnpike webhooks update ops --enabled=false`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked := map[string]any{}
			if cmd.Flags().Changed("to") {
				asked["url"] = to
			}
			if cmd.Flags().Changed("events") {
				asked["events"] = events
			}
			if cmd.Flags().Changed("enabled") {
				asked["enabled"] = enabled
			}
			if len(asked) == 0 {
				return errors.New("name what to change: --to, --events or --enabled")
			}
			if err := m.call(cmd.Context(), http.MethodPatch, webhookPath(args[0]), asked, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is updated\n", plain(args[0]))
			return nil
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "new `URL` of the receiver")
	cmd.Flags().StringSliceVar(&events, "events", nil, eventsUsage)
	cmd.Flags().BoolVar(&enabled, "enabled", true, "whether events are sent")
	return cmd
}

func rotateWebhook(m *remote) *cobra.Command {
	var overlap time.Duration
	cmd := &cobra.Command{
		Use:   "rotate NAME",
		Short: "Give a webhook a new secret and print it; it cannot be shown again",
		Long: `Give a webhook a new secret and print it; it cannot be shown again. For the time
--overlap, each message has a signature of both secrets, so that the receiver can
change to the new one.`,
		Example: "  turnpike webhooks rotate ops --overlap 24h",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			var w webhookObject
			if err := m.call(cmd.Context(), http.MethodPost, webhookPath(args[0])+"/rotate", map[string]any{"overlap": overlap.String()}, &w); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), plain(w.Secret))
			old := "the old one does not sign any more"
			if w.PreviousUntil != nil {
				old = "the old one signs as well until " + w.PreviousUntil.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has a new secret, which is not shown again; %s\n", plain(w.Name), old)
			return nil
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "how long the old secret still signs, such as 24h; 0 ends it at once")
	return cmd
}

func removeWebhook(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "Remove a webhook with its messages; those that wait are not sent",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.call(cmd.Context(), http.MethodDelete, webhookPath(args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is removed\n", plain(args[0]))
			return nil
		},
	}
}

func testWebhook(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "test NAME",
		Short: "Send a test message to the receiver of a webhook, and say what it answered",
		Long: `Send a signed message of the type webhook.test to the receiver of a webhook, once, and
say what it answered. The message is sent whatever events the webhook has, also while
it is disabled. It is not stored and not sent again.

The exit status is 0 if the receiver accepted the message and 1 otherwise.`,
		Example: "  turnpike webhooks test ops",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			var got struct {
				ID        string
				Delivered bool
				Status    *int
				Error     string
			}
			if err := m.call(cmd.Context(), http.MethodPost, webhookPath(args[0])+"/test", nil, &got); err != nil {
				return err
			}
			if !got.Delivered {
				return fmt.Errorf("the test message %s was not accepted: %s", got.ID, got.Error)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the receiver accepted the test message %s with status %d\n", plain(got.ID), *got.Status)
			return nil
		},
	}
}

func listDeliveries(m *remote) *cobra.Command {
	var outcome, after string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "deliveries NAME",
		Short: "List the messages of a webhook, newest first",
		Long: `List the messages of a webhook, newest first: those that wait, and those that were
delivered or given up in the last 7 days, at most 1,000 of them.

With --json, each message is one JSON object per line.`,
		Example: "  turnpike webhooks deliveries ops --outcome given_up",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			if outcome != "" && !slices.Contains(journal.Outcomes(), outcome) {
				return fmt.Errorf("--outcome: unknown outcome %q; the outcomes are %s", outcome, strings.Join(journal.Outcomes(), ", "))
			}
			query := url.Values{"limit": {strconv.Itoa(limit)}}
			for name, value := range map[string]string{"outcome": outcome, "after": after} {
				if value != "" {
					query.Set(name, value)
				}
			}
			var page struct {
				Data []deliveryObject
				Next string
			}
			if err := m.call(cmd.Context(), http.MethodGet, webhookPath(args[0])+"/deliveries?"+query.Encode(), nil, &page); err != nil {
				return err
			}
			if asJSON {
				return printEach(cmd, page.Data)
			}
			t := newTable(cmd.OutOrStdout(), "MESSAGE", "AT (UTC)", "EVENT", "OBJECT", "OUTCOME", "ATTEMPTS", "LAST ATTEMPT")
			for _, d := range page.Data {
				last := d.Error
				if last == "" && d.Status != nil {
					last = strconv.Itoa(*d.Status)
				}
				if d.NextAttemptAt != nil && d.Attempts > 0 {
					last += "; next at " + d.NextAttemptAt.UTC().Format(time.DateTime)
				}
				t.row(d.ID, d.At.UTC().Format(time.DateTime), d.Event, d.Object, d.Outcome, d.Attempts, last)
			}
			if err := t.flush(); err != nil {
				return err
			}
			if page.Next != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "There are more: add --after %s\n", plain(page.Next))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&outcome, "outcome", "", "only messages with this `OUTCOME`: "+strings.Join(journal.Outcomes(), ", "))
	cmd.Flags().StringVar(&after, "after", "", "only messages after the one with this `ID` in the list")
	cmd.Flags().IntVar(&limit, "limit", 50, "maximum number of messages, 1 to 200")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table")
	return cmd
}

func redeliver(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "redeliver NAME MESSAGE…",
		Short: "Send messages of a webhook again, with the same ids",
		Long: `Send messages of a webhook again, at once and then with the usual back-off: also those
that were delivered or given up. They keep their ids, so that a receiver which has
processed one already can ignore it.`,
		Example: "  turnpike webhooks redeliver ops evt_2QyQcL3mFhP7",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return errors.New("name the webhook and at least one message: turnpike webhooks redeliver NAME MESSAGE")
			}
			for _, one := range args {
				if strings.Trim(one, ".") == "" {
					return noName(cmd, one)
				}
			}
			for _, id := range args[1:] {
				if err := m.call(cmd.Context(), http.MethodPost, webhookPath(args[0])+"/deliveries/"+url.PathEscape(id)+"/redeliver", map[string]any{}, nil); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is sent again\n", plain(id))
			}
			return nil
		},
	}
}
