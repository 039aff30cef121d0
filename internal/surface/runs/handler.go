package runs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

const (
	defaultRuns = 20  // runs of a page, unless told
	maxRuns     = 100 // runs of a page at most
	// listedBytes is about how much memory a run of a page takes.
	listedBytes = 1 << 10
)

// Runner follows, cancels and raises runs. Implemented by *run.Runner.
type Runner interface {
	Follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink) error
	Cancel(ctx context.Context, orgID, runID string, by org.Author) error
	Raise(ctx context.Context, orgID, runID string, n run.NewLimits, by org.Author, account *memlimit.Account) (budget.Limits, error)
}

// Options configure a Handler. All but Now are required.
type Options struct {
	Archive    journal.Archive
	Hooks      journal.HookMessagesOfRun
	Runner     Runner
	Heartbeats *sse.Heartbeats
	Log        *slog.Logger
	Now        func() time.Time // nil = time.Now
}

// Handler serves the API of runs. Its methods return errors for the HTTP server to
// answer with, in the form of the route.
type Handler struct{ o Options }

// New returns a Handler.
func New(o Options) *Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Handler{o}
}

// List answers GET /v1/runs.
func (h *Handler) List(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	q, err := h.query(r, caller)
	if err != nil {
		return h.failed(err)
	}
	limit := q.Limit
	if err := caller.Account.Acquire((limit + 1) * listedBytes); err != nil {
		return err
	}
	if !caller.Principal.Role.MayRead() {
		if q.Principal != "" && q.Principal != caller.Principal.ID {
			return surface.WriteJSON(w, http.StatusOK, newPage(nil, limit))
		}
		q.Principal = caller.Principal.ID
	}
	q.Limit++ // one more shows whether there are older runs
	found, err := h.o.Archive.Runs(r.Context(), caller.Org.ID, q)
	if err != nil { // before can be deleted since it was found
		return h.failed(surface.Refused(err, aRun("before")))
	}
	return h.failed(surface.WriteStored(w, caller, http.StatusOK, newPage(found, limit)))
}

// Get answers GET /v1/runs/{id}.
func (h *Handler) Get(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	s, err := h.find(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return h.failed(err)
	}
	d, err := eventlog.Show(r.Context(), h.o.Archive, caller.Org.ID, s.RunID, caller.Account)
	if err != nil {
		return h.failed(err)
	}
	out := shownRun{"run", NewDetail(d, caller.Principal.Role.MaySeeAddresses())}
	if err := caller.Account.Acquire(shownBytes(d)); err != nil {
		return err
	}
	told, err := h.o.Hooks.HookMessages(r.Context(), caller.Org.ID, s.RunID)
	if err != nil {
		return h.failed(err)
	}
	out.OnRunComplete = NewToldHooks(told)
	return h.failed(surface.WriteStored(w, caller, http.StatusOK, out))
}

// shownBytes is about how large the JSON of a detail is.
func shownBytes(d *eventlog.Detail) int {
	n := 4 << 10
	for _, c := range d.Calls {
		n += listedBytes/2 + len(c.Name)
	}
	if d.ModelFailure != nil {
		n += 2 * len(d.ModelFailure.Body)
	}
	if d.Failure != nil && d.Failure.Upstream != nil {
		n += 2 * len(d.Failure.Upstream.Body)
	}
	return n
}

// Cancel answers POST /v1/runs/{id}/cancel. When the answer is sent, the request to
// cancel is on disk. It is carried out even if the client has left.
func (h *Handler) Cancel(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, r.Body); err != nil { // it has nothing to say
		return h.failed(err)
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	s, err := h.find(ctx, caller, r.PathValue("id"))
	if err != nil {
		return h.failed(err)
	}
	by := caller.Author(h.o.Now())
	if err := h.o.Runner.Cancel(ctx, caller.Org.ID, s.RunID, by); err != nil {
		return h.failed(err)
	}
	return h.failed(surface.WriteJSON(w, http.StatusAccepted, cancelled{s.RunID, "cancelling"}))
}

// find returns the run with an id or UUID, if it exists for the caller.
func (h *Handler) find(ctx context.Context, caller caller.Caller, text string) (journal.Summary, error) {
	head, err := h.o.Archive.Head(ctx, caller.Org.ID, audit.StoredRunID(text))
	if err == nil && !sees(caller, head.Summary) {
		err = fmt.Errorf("run %s of another key: %w", text, org.ErrNotFound)
	}
	return head.Summary, err
}

// sees reports whether a run exists for the caller.
func sees(caller caller.Caller, s journal.Summary) bool {
	return caller.Principal.Role.MayRead() || s.Principal == caller.Principal.ID
}

// failed returns the error to answer with. It logs what the caller does not get. The error of an id of which the
// caller may know nothing does not have the id, so that no id can be told from another.
func (h *Handler) failed(err error) error { return surface.Failed(h.o.Log, err, aRun("")) }

// aRun is the run that a request names in the parameter; "" = in the path.
func aRun(param string) surface.Thing {
	return surface.Thing{Kind: "run", Param: param, Hint: "GET /v1/runs lists the runs that this API key can see"}
}

// query reads the parameters of a list.
func (h *Handler) query(r *http.Request, caller caller.Caller) (journal.Query, error) {
	values := r.URL.Query()
	q := journal.Query{Principal: values.Get("key_id")}
	if err := surface.CheckQuery(values, "state", "since", "key_id", "before", "limit"); err != nil {
		return q, err
	}
	if text := values.Get("state"); text != "" {
		q.States = strings.Split(text, ",")
		for _, s := range q.States {
			if !slices.Contains(journal.States(), s) {
				return q, surface.InvalidValue("state", "unknown state %q; the states are %s", s, strings.Join(journal.States(), ", "))
			}
		}
	}
	since, err := surface.QueryTime(values, "since")
	if err != nil {
		return q, err
	}
	if !since.IsZero() {
		q.Since = since.UnixMilli()
	}
	if q.Limit, err = surface.QueryNumber(values, "limit", defaultRuns, 1, maxRuns); err != nil {
		return q, err
	}
	if text := values.Get("before"); text != "" {
		s, err := h.find(r.Context(), caller, text)
		if err != nil {
			return q, surface.Refused(err, aRun("before"))
		}
		q.Before = s.RunID
	}
	return q, nil
}
