package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface/approvals"
)

// maxArguments is how many bytes of arguments are read from the store for one approval.
const maxArguments = 16 << 20

func approvalsCommand(p Process) *cobra.Command {
	var from readStore
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List, show and decide tool calls that wait for approval",
		Args:  cobra.NoArgs,
	}
	for _, c := range []*cobra.Command{listApprovals(p, &from), showApproval(p, &from), decideApproval(p, &from, true), decideApproval(p, &from, false)} {
		from.flags(c)
		cmd.AddCommand(c)
	}
	return cmd
}

const howApprovalsAreRead = `Over the API of a running gateway, with TURNPIKE_KEY set to a key with the role
owner, admin or approver. Without a key or a running gateway, the command reads the
data directory. With --url alone it asks only that gateway, and with --data alone it
reads only that directory.`

func listApprovals(p Process, from *readStore) *cobra.Command {
	m := remote{own: from}
	var status []string
	var runID, server string
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tool calls that wait for approval, newest first",
		Long: `List tool calls that wait for approval, newest first. With --status, list those that
were decided. ` + howApprovalsAreRead + `

With --json, each approval is one JSON object per line.`,
		Example: `  turnpike approvals list
  turnpike approvals list --status denied,expired --server files --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, s := range status {
				if !slices.Contains(journal.ApprovalStatuses(), s) {
					return fmt.Errorf("--status: unknown status %q; the statuses are %s", s, strings.Join(journal.ApprovalStatuses(), ", "))
				}
			}
			if limit < 1 || limit > 100 {
				return errors.New("--limit must be a whole number from 1 to 100")
			}
			query := url.Values{"status": {strings.Join(status, ",")}, "limit": {strconv.Itoa(limit)}, "run_id": {runID}, "server": {server}}
			var page struct{ Data []approvals.Object }
			err := m.call(cmd.Context(), http.MethodGet, "/v1/approvals?"+query.Encode(), nil, &page)
			if m.useStore(err) {
				page.Data, err = storedApprovals(cmd.Context(), p, from, journal.ApprovalQuery{Statuses: statuses(status), RunID: audit.StoredRunID(runID), Server: server, Limit: limit})
			}
			if err != nil {
				return err
			}
			if !asJSON {
				return printApprovals(cmd.OutOrStdout(), page.Data, time.Now())
			}
			for _, a := range page.Data {
				if err := printJSON(cmd.OutOrStdout(), a); err != nil {
					return err
				}
			}
			return nil
		},
	}
	m.flags(cmd, p)
	cmd.Flags().StringSliceVar(&status, "status", []string{string(journal.ApprovalWaiting)}, "only approvals with this `STATUS`: "+strings.Join(journal.ApprovalStatuses(), ", "))
	cmd.Flags().StringVar(&runID, "run", "", "only approvals of the run with this `ID`")
	cmd.Flags().StringVar(&server, "server", "", "only approvals of calls of this MCP `SERVER`")
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number of approvals, 1 to 100")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table")
	return cmd
}

func statuses(names []string) (out []journal.ApprovalStatus) {
	for _, s := range names {
		out = append(out, journal.ApprovalStatus(s))
	}
	return out
}

// storedApprovals reads a list from the data directory.
func storedApprovals(ctx context.Context, p Process, from *readStore, q journal.ApprovalQuery) ([]approvals.Object, error) {
	store, err := from.open(ctx, p)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	orgID, err := from.oneOrg(ctx, p, store)
	if err != nil {
		return nil, err
	}
	found, err := store.Approvals(ctx, orgID, q)
	if err != nil {
		return nil, err
	}
	keys, err := store.Keys(ctx, orgID)
	if err != nil {
		return nil, err
	}
	out := make([]approvals.Object, len(found))
	for i, a := range found {
		if out[i], err = storedObject(ctx, store, a, keys, approvals.MaxListed); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// storedObject returns the object of an approval, with arguments of up to limit bytes. Only a gateway
// knows where the client is.
func storedObject(ctx context.Context, archive journal.Archive, a journal.Approval, keys []org.Key, limit int) (o approvals.Object, err error) {
	d := approvals.Details{KeyName: func(id string) string { return keyName(keys, id) }}
	if d.Arguments, err = journal.ArgumentsOf(ctx, archive, a, limit); err != nil {
		return o, err
	}
	if d.Said, err = run.UserMessageOf(ctx, archive, a); err != nil {
		return o, err
	}
	return approvals.NewObject(a, d), nil
}

// keyName returns the name of a key by its id; "" = it has none. The id of a key that the
// configuration file declares is its name.
func keyName(stored []org.Key, id string) string {
	for _, k := range stored {
		if k.ID == id {
			return k.Name
		}
	}
	if id == org.CommandLine || strings.HasPrefix(id, org.KeyPrefix) {
		return ""
	}
	return id
}

func printApprovals(out io.Writer, found []approvals.Object, now time.Time) error {
	t := newTable(out, "APPROVAL", "AGE", "EXPIRES", "SERVER", "TOOL", "RUN", "BY", "STATUS")
	for _, a := range found {
		expires := "never"
		if a.ExpiresAt != nil {
			expires = "-"
			if at, err := time.Parse(time.RFC3339, *a.ExpiresAt); err == nil && a.Status == journal.ApprovalWaiting {
				expires = "in " + inSeconds(at.Sub(now))
			}
		}
		age := ""
		if at, err := time.Parse(time.RFC3339, a.CreatedAt); err == nil {
			age = inSeconds(now.Sub(at))
		}
		t.row(a.ID, age, expires, a.Server, a.Tool, a.RunID, nameOr(a.PrincipalName, a.Principal), a.Status)
	}
	return t.flush()
}

// nameOr returns the name of a key, or its id if it has none.
func nameOr(name *string, id string) string {
	if name != nil {
		return *name
	}
	return id
}

// nameAndID returns the name of a key with its id, which may be the same.
func nameAndID(name *string, id string) string {
	if name == nil || *name == id {
		return id
	}
	return *name + " (" + id + ")"
}

// inSeconds returns a duration in whole seconds, at least 0.
func inSeconds(d time.Duration) string { return max(0, d).Round(time.Second).String() }

func showApproval(p Process, from *readStore) *cobra.Command {
	m := remote{own: from}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show a tool call that waits for approval, with its arguments",
		Long:  "Show a tool call that waits, or waited, for approval, with its arguments.\n" + howApprovalsAreRead,
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			var a approvals.Object
			err := m.call(cmd.Context(), http.MethodGet, "/v1/approvals/"+url.PathEscape(args[0]), nil, &a)
			if m.useStore(err) {
				a, err = storedApproval(cmd.Context(), p, from, args[0])
			}
			if err != nil {
				return aboutApproval(args[0], err)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), a)
			}
			return printApproval(cmd.OutOrStdout(), a)
		},
	}
	m.flags(cmd, p)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// storedApproval reads an approval from the data directory.
func storedApproval(ctx context.Context, p Process, from *readStore, id string) (approvals.Object, error) {
	store, err := from.open(ctx, p)
	if err != nil {
		return approvals.Object{}, err
	}
	defer store.Close()
	var a journal.Approval
	_, err = from.orgWith(ctx, p, store, "approval "+id, func(orgID string) (err error) {
		a, err = store.Approval(ctx, orgID, id)
		return err
	})
	if err != nil {
		return approvals.Object{}, err
	}
	keys, err := store.Keys(ctx, a.Org)
	if err != nil {
		return approvals.Object{}, err
	}
	return storedObject(ctx, store, a, keys, maxArguments)
}

// printApproval prints an approval with all its arguments. What would command a terminal is
// shown as its escape in JSON: who decides must see that it is there.
func printApproval(out io.Writer, a approvals.Object) error {
	text := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	var b strings.Builder
	line := func(name, value string) { fmt.Fprintf(&b, "%-14s%s\n", name, plain(value)) }
	line("approval", a.ID)
	line("status", string(a.Status))
	line("run", a.RunID+", call "+string(a.CallKey)+", "+a.Surface)
	line("asked by", nameAndID(a.PrincipalName, a.Principal))
	if a.Status == journal.ApprovalWaiting {
		line("client", whereClientIs(a.Client))
	}
	line("server", a.Server)
	if a.Host != nil {
		line("host", *a.Host)
	}
	line("tool", a.Tool)
	line("created", a.CreatedAt)
	line("expires", text(a.ExpiresAt))
	if a.DecidedAt != nil {
		by := "-"
		if a.DecidedBy != nil {
			by = nameAndID(a.DecidedByName, *a.DecidedBy)
		}
		line("decided", *a.DecidedAt+" by "+by)
		line("reason", text(a.Reason))
	}
	line("rule of", string(a.Asker))
	if a.Message != nil {
		line("message", *a.Message)
	}
	line("tool digest", a.ToolDigest+", SHA-256 of the definition of the tool")
	line("arguments", a.ArgsDigest+", first half of the SHA-256 of the arguments")
	line("rules", a.Policy+", first half of the SHA-256 of the approval rules of the server")
	b.WriteByte('\n')
	if a.Said != nil {
		b.WriteString("last message of the user:\n")
		for said := range strings.Lines(*a.Said) {
			b.WriteString("  " + escaped(strings.TrimSuffix(said, "\n")) + "\n")
		}
		if a.SaidCut {
			fmt.Fprintf(&b, "  (cut after %d KiB)\n", run.MaxUserMessage>>10)
		}
		b.WriteByte('\n')
	}
	switch {
	case a.Omitted:
		b.WriteString("The arguments are not stored any more.\n")
	default:
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, a.Arguments, "", "  "); err != nil {
			return err
		}
		b.WriteString(escaped(pretty.String()))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// whereClientIs says where the client of a run is that waits; nil = it is not known.
func whereClientIs(c *run.Client) string {
	if c == nil {
		return "unknown: only a running gateway knows it"
	}
	what := map[run.Client]string{
		run.ClientConnected: "its request is open",
		run.ClientAway:      "it can come back for the answer",
		run.ClientLeft:      "nobody can have the answer, and the call is not executed",
	}
	return string(*c) + ": " + what[*c]
}

// aboutApproval returns err, or what it says of an approval that does not exist with the id and the command that lists approvals. The
// API names no id.
func aboutApproval(id string, err error) error {
	var refused *refusedError
	if errors.As(err, &refused) && refused.code == "not_found" {
		return fmt.Errorf("there is no approval with the id %q; turnpike approvals list shows those that wait", id)
	}
	return err
}

func decideApproval(p Process, from *readStore, approve bool) *cobra.Command {
	m := remote{own: from}
	var reason string
	word, done := "deny", "denied"
	short := "Deny a tool call: the model gets an error as its result"
	if approve {
		word, done = "approve", "approved"
		short = "Approve a tool call: it is executed when all calls of its turn are decided"
	}
	cmd := &cobra.Command{
		Use:   word + " ID",
		Short: short,
		Long: short + `.

Over the API of a running gateway, with TURNPIKE_KEY set to a key with the role
owner, admin or approver.

If no gateway is running, the command records the decision in the data directory.
The run continues when the gateway starts. This needs no key.`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]string{"decision": word}
			if reason != "" {
				body["reason"] = reason
			}
			err := m.call(cmd.Context(), http.MethodPost, "/v1/approvals/"+url.PathEscape(args[0]), body, nil)
			if m.useStore(err) {
				return decideStored(cmd, p, from, args[0], journal.Decision{Approved: approve, Message: reason}, err)
			}
			if err != nil {
				return aboutApproval(args[0], err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is %s\n", plain(args[0]), done)
			return nil
		},
	}
	m.flags(cmd, p)
	cmd.Flags().StringVar(&reason, "reason", "", "`TEXT` for the audit log, and for the model if the call is denied")
	return cmd
}

// decideStored records a decision in the store, if no gateway has it open. Why is the error of
// the gateway's API.
func decideStored(cmd *cobra.Command, p Process, from *readStore, id string, d journal.Decision, why error) error {
	ctx := cmd.Context()
	store, err := from.openUnused(ctx, p, why)
	if err != nil {
		return err
	}
	defer store.Close()
	runner := run.New(run.Options{Journal: store, Archive: store, Leases: store, Build: app.Version()})
	by := run.TrustedDecider(org.Author{Principal: org.CommandLine, At: time.Now().UnixMilli()})
	var a journal.Approval
	if _, err := from.orgWith(ctx, p, store, "approval "+id, func(orgID string) (err error) {
		a, err = runner.Decisions().Decide(ctx, orgID, id, d, by)
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "no gateway is running: %s is %s, and its run continues when the gateway starts\n", plain(id), a.Status)
	return nil
}
