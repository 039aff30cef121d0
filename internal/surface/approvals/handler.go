package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

const (
	defaultApprovals = 20  // approvals of a page, unless told
	maxApprovals     = 100 // approvals of a page at most
	// maxWait is the longest time that a list waits for its first approval, in seconds.
	maxWait = 60
	// MaxListed is how many bytes arguments may have in a list.
	MaxListed = 4 << 10
	// listedBytes is about how much memory an approval of a page takes, with its arguments
	// and the user's message.
	listedBytes = 2<<10 + 2*MaxListed + 2*run.MaxUserMessage
)

// Decisions waits for approvals and decides them. Implemented by [run.Decisions].
type Decisions interface {
	// Client returns where the client is that waits for the decision.
	Client(ctx context.Context, a journal.Approval) (run.Client, error)
	// DecideNext decides the only call of a run that waits, or one that is not asked for yet.
	DecideNext(ctx context.Context, n run.Next, by run.Decider) (journal.Approval, error)
	AwaitApprovals(ctx context.Context, orgID string, q journal.ApprovalQuery, longest time.Duration, account *memlimit.Account) ([]journal.Approval, error)
	Decide(ctx context.Context, orgID, id string, d journal.Decision, by run.Decider) (journal.Approval, error)
}

// Options configure a Handler. All but Now are required.
type Options struct {
	Archive   journal.Archive
	Decisions Decisions
	KeyName   func(orgID, id string) string // name of a key of the org, also of a revoked one; "" = unknown
	Log       *slog.Logger
	Now       func() time.Time // nil = time.Now
}

// Handler serves the API of approvals. Its methods return errors for the HTTP server to
// answer with, in the form of the route.
type Handler struct{ o Options }

// New returns a Handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Handler{o}
}

// List answers GET /v1/approvals. With the parameter wait, an empty list is answered when an
// approval appears, or after that time. A request that waits is not admitted to the store
// meanwhile.
func (h *Handler) List(w http.ResponseWriter, r *http.Request, sender caller.Caller) error {
	q, wait, err := query(r.URL.Query())
	if err != nil {
		return err
	}
	if err := sender.Account.Acquire((q.Limit + 1) * listedBytes); err != nil {
		return err
	}
	q.Access = sender.Principal.Access
	limit := q.Limit
	q.Limit++ // one more shows whether there are older ones
	var found []journal.Approval
	if wait > 0 {
		if found, err = h.o.Decisions.AwaitApprovals(r.Context(), sender.Org.ID, q, wait, sender.Account); err != nil {
			return h.failedIn(err, "before")
		}
	}
	return surface.Admitted(func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		if wait == 0 {
			if found, err = h.o.Archive.Approvals(r.Context(), caller.Org.ID, q); err != nil {
				return h.failedIn(err, "before")
			}
		}
		return h.writeList(w, r, caller, found, limit)
	})(w, r, sender)
}

func (h *Handler) writeList(w http.ResponseWriter, r *http.Request, caller caller.Caller, found []journal.Approval, limit int) error {
	data := make([]Object, min(len(found), limit))
	for i := range data {
		arguments, err := journal.ArgumentsOf(r.Context(), h.o.Archive, found[i], MaxListed)
		if err != nil {
			return h.failed(err)
		}
		if data[i], err = h.object(r.Context(), found[i], arguments); err != nil {
			return h.failed(err)
		}
	}
	page := surface.NewIDPage(data, limit, func(o Object) Object { return o }, func(o Object) string { return o.ID })
	page.HasMore = len(found) > limit
	return h.failed(surface.WriteStored(w, caller, http.StatusOK, page))
}

// Get answers GET /v1/approvals/{id}.
func (h *Handler) Get(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	a, err := h.o.Archive.Approval(r.Context(), caller.Org.ID, r.PathValue("id"))
	if err == nil && !a.Within(caller.Principal.Access) {
		err = org.ErrNotFound
	}
	if err != nil {
		return h.failed(err)
	}
	return h.write(r.Context(), w, caller, a)
}

// Decide answers POST /v1/approvals/{id}. When the answer is sent, the decision is on disk. It
// is recorded even if the client has left.
func (h *Handler) Decide(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	body, err := surface.ReadObject(r, caller.Account)
	if err != nil {
		return h.failed(err)
	}
	d, err := decision(body, "reason")
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	a, err := h.o.Decisions.Decide(ctx, caller.Org.ID, r.PathValue("id"), d, h.decider(caller))
	if err != nil {
		return h.failed(err)
	}
	return h.write(ctx, w, caller, a)
}

func (h *Handler) decider(c caller.Caller) run.Decider {
	return run.KeyDecider(c.Org, c.Principal, c.Author(h.o.Now()))
}

// write answers with an approval and all of its arguments: who decides must see them.
func (h *Handler) write(ctx context.Context, w http.ResponseWriter, caller caller.Caller, a journal.Approval) error {
	arguments, err := allArguments(ctx, h.o.Archive, caller.Account, a)
	if err != nil {
		return h.failed(err)
	}
	if err := caller.Account.Acquire(listedBytes + 2*len(arguments)); err != nil {
		return err
	}
	object, err := h.object(ctx, a, arguments)
	if err != nil {
		return h.failed(err)
	}
	return h.failed(surface.WriteJSON(w, http.StatusOK, object))
}

// object returns the object of an approval with these arguments.
func (h *Handler) object(ctx context.Context, a journal.Approval, arguments json.RawMessage) (o Object, err error) {
	d := Details{Arguments: arguments, KeyName: func(id string) string { return h.o.KeyName(a.Org, id) }}
	if d.Said, err = run.UserMessageOf(ctx, h.o.Archive, a); err != nil {
		return o, err
	}
	if d.Client, err = h.o.Decisions.Client(ctx, a); err != nil {
		return o, err
	}
	return NewObject(a, d), nil
}

// allArguments returns the arguments of an approval, or nil if its run is deleted. The account
// is charged with large ones before they are read.
func allArguments(ctx context.Context, archive journal.Archive, account *memlimit.Account, a journal.Approval) (json.RawMessage, error) {
	rows, err := archive.Rows(ctx, a.Org, a.RunID, []string{a.ArgsRef}, MaxListed)
	var large *journal.TooLarge
	if errors.As(err, &large) {
		if err := account.Acquire(large.Bytes); err != nil {
			return nil, err
		}
		rows, err = archive.Rows(ctx, a.Org, a.RunID, []string{a.ArgsRef}, large.Bytes)
	}
	if errors.Is(err, org.ErrNotFound) || err == nil && len(rows) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return rows[0], nil
}

// failed returns the error to answer with. It logs what the caller does not get. The error of an id of which the
// caller may know nothing does not have the id, so that no id can be told from another.
func (h *Handler) failed(err error) error { return h.failedIn(err, "") }

// failedIn is failed for a request in which only the parameter names an approval.
func (h *Handler) failedIn(err error, param string) error {
	about := surface.Thing{Kind: "approval", Param: param, Hint: "GET /v1/approvals lists the approvals of the org"}
	return surface.Failed(h.o.Log, err, about)
}

// query reads the parameters of a list, and how long it waits.
func query(values url.Values) (q journal.ApprovalQuery, wait time.Duration, err error) {
	if err := surface.CheckQuery(values, "status", "run_id", "server", "before", "limit", "wait"); err != nil {
		return q, 0, err
	}
	q = journal.ApprovalQuery{Server: values.Get("server"), Before: values.Get("before")}
	if text := values.Get("run_id"); text != "" {
		q.RunID = audit.StoredRunID(text)
	}
	if text := values.Get("status"); text != "" {
		for s := range strings.SplitSeq(text, ",") {
			if !slices.Contains(journal.ApprovalStatuses(), s) {
				return q, 0, surface.InvalidValue("status", "unknown status %.80q; the statuses are %s", s, strings.Join(journal.ApprovalStatuses(), ", "))
			}
			q.Statuses = append(q.Statuses, journal.ApprovalStatus(s))
		}
	}
	if q.Limit, err = surface.QueryNumber(values, "limit", defaultApprovals, 1, maxApprovals); err != nil {
		return q, 0, err
	}
	seconds, err := surface.QueryNumber(values, "wait", 0, 0, maxWait)
	return q, time.Duration(seconds) * time.Second, err
}

// remember is the member that approves further calls of the tool in the session.
const remember = "remember_for_session"

// decision reads the body of a decision, in which the member reason is for the model, and which may have more members.
func decision(body map[string]json.RawMessage, reason string, more ...string) (d journal.Decision, err error) {
	if err := surface.OnlyMembers(body, append([]string{"decision", reason, remember}, more...)...); err != nil {
		return d, err
	}
	word, err := text(body, "decision")
	if err != nil {
		return d, err
	}
	if d.Message, err = text(body, reason); err != nil {
		return d, err
	}
	switch {
	case word == "approve" || word == "deny":
		d.Approved = word == "approve"
	case body["decision"] == nil:
		return d, fault.New(fault.Invalid, "missing_required_parameter", "the request has no decision; send approve or deny").In("decision")
	default:
		return d, surface.InvalidValue("decision", "unknown decision %.80q; send approve or deny", word)
	}
	if d.Remember, err = flag(body, remember); d.Remember && !d.Approved {
		err = surface.InvalidValue(remember, "only an approval can be remembered; leave %s out, or send it with approve", remember)
	}
	return d, err
}

// flag returns a member that is true or false; false if it is missing.
func flag(body map[string]json.RawMessage, name string) (bool, error) {
	switch string(body[name]) {
	case "", "null", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, fault.New(fault.Invalid, "invalid_type", "%s is not true or false", name).In(name)
}

// text returns a member that is a string; "" if it is missing.
func text(body map[string]json.RawMessage, name string) (value string, err error) {
	if raw := body[name]; raw != nil {
		if raw[0] != '"' || json.Unmarshal(raw, &value) != nil {
			return "", fault.New(fault.Invalid, "invalid_type", "%s is not a string", name).In(name)
		}
	}
	return value, nil
}
