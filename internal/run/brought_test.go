package run_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// stand is an MCP server with one tool, which answers with the server's credentials.
type stand struct {
	tool, credentials string
	lists, calls      atomic.Int32
	work              func(context.Context) error // nil = answers at once
	listing           func(context.Context) error // the same for a list
}

func (s *stand) List(ctx context.Context) ([]tool.Tool, error) {
	s.lists.Add(1)
	if s.listing != nil {
		if err := s.listing(ctx); err != nil {
			return nil, err
		}
	}
	return []tool.Tool{standTool{booth{name: s.tool}, s}}, nil
}

// brought is the server as a request brings it.
func (s *stand) brought(name string) catalog.Server {
	return catalog.Server{Name: name, Source: s, FromRequest: true, URL: "https://tools", Origin: s.credentials}
}

type standTool struct {
	booth
	stand *stand
}

func (s standTool) Call(ctx context.Context, _ tool.Call) (tool.Result, error) {
	s.stand.calls.Add(1)
	if s.stand.work != nil {
		if err := s.stand.work(ctx); err != nil {
			return tool.Result{}, err
		}
	}
	return tool.Text(s.stand.credentials), nil
}

// user calls every tool that it is offered, once, and says what they answered.
type user struct{}

func (user) Stream(_ context.Context, req *model.Request, emit func(model.Delta) error) (*model.Turn, error) {
	turn := says(strings.Join(results(req.Items), " "))
	if results(req.Items) == nil {
		var names []string
		for _, t := range req.Tools {
			names = append(names, t.Name)
		}
		return asks(names...), nil
	}
	return turn, emit(model.Delta{Text: turn.Text()})
}

// from makes the request one to a user of these servers.
func from(req *run.Request, servers ...catalog.Server) *run.Request {
	req.Targets, req.Servers = []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: user{}}}, servers
	req.Policy.CatalogTTLNS = int64(time.Minute)
	return req
}

// Two requests of one org have the tools of their own servers, and call them with
// their own credentials, also if the servers have one name and one address. // K07
func TestRequestsThatBringServersHaveTheirOwnTools(t *testing.T) {
	w := &town{}
	g := w.gateway(t)
	own, red, blue := &stand{tool: "read_org", credentials: "org"}, &stand{tool: "read_red", credentials: "red"}, &stand{tool: "read_blue", credentials: "blue"}
	same := &stand{tool: "read_blue", credentials: "other blue"}
	org := catalog.Server{Name: "s", Source: own, Revision: 1}
	var asked sync.WaitGroup
	for i := range 3 {
		for want, servers := range map[string][]catalog.Server{
			"org":      {org},
			"red org":  {org, red.brought("mine")},
			"blue org": {org, blue.brought("mine")},
			"red":      {red.brought("mine")},
			// The same definition as that of blue.
			"other blue org": {org, same.brought("mine")},
		} {
			asked.Go(func() {
				var d diary
				err := g.Run(t.Context(), from(w.wants("p", fmt.Sprint(want, i), "h"), servers...), &d)
				got, _ := d.said()
				if a, b := strings.Fields(got), strings.Fields(want); err != nil || !sameWords(a, b) {
					t.Errorf("the run has the answers %q, %v, want %q", got, err, want)
				}
			})
		}
		asked.Wait()
	}
	for _, s := range []*stand{own, red, blue, same} {
		if s.lists.Load() != 1 {
			t.Errorf("the server of %s was asked %d times for its tools", s.credentials, s.lists.Load())
		}
	}
}

func sameWords(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// others are the Resources of a gateway that has other servers than the run's.
type others []catalog.Server

func (o others) For(context.Context, *loop.Accepted) ([]route.Target, []catalog.Server, error) {
	return []route.Target{{Target: loop.Target{Provider: "up", Model: "m"}, Client: user{}}}, o, nil
}

func untilItEnds(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// takenOver begins the request at a gateway that is then gone, and returns what follows
// the run to its end at another one, which has these servers.
func (w *town) takenOver(t *testing.T, req *run.Request, servers ...catalog.Server) (text string, end event.Finished) {
	t.Helper()
	first, second := w.gateway(t), w.gatewayWith(t, func(o *run.Options) { o.Resources = others(servers) })
	leaving(t, first, req, &diary{})
	time.Sleep(journal.LeaseTTL)
	if err := second.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.attached(t, second)
}

// leaving begins the request at a gateway whose caller leaves after a second.
func leaving(t *testing.T, r *run.Runner, req *run.Request, d *diary) {
	t.Helper()
	ctx, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	_ = r.Run(ctx, req, d)
}

// The next owner does not have the server that the request brought. It does not call the
// org's server of that name instead, and continues with what it has.
func TestATakenOverRunDoesNotCallAnotherServerOfTheSameName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := &stand{tool: "read_mine", credentials: "mine", work: untilItEnds}
		orgs, kept := &stand{tool: "read_mine", credentials: "org"}, &stand{tool: "read_kept", credentials: "kept", work: untilItEnds}
		w := &town{}
		req := from(w.wants("p", "k", "h"), catalog.Server{Name: "s", Source: kept}, mine.brought("mine"))
		now := &stand{tool: "read_kept", credentials: "kept"}
		text, end := w.takenOver(t, req, catalog.Server{Name: "s", Source: now}, catalog.Server{Name: "mine", Source: orgs})
		if !strings.Contains(text, "was removed or changed after the run started") || !strings.Contains(text, "kept") || end.Reason != event.Complete {
			t.Errorf("the run ended with %s and says %q", end.Reason, text)
		}
		if orgs.calls.Load() != 0 || mine.calls.Load() != 1 || now.calls.Load() != 1 {
			t.Errorf("%d calls of the org's server of that name, %d of the brought one, %d of the one that is there", orgs.calls.Load(), mine.calls.Load(), now.calls.Load())
		}
	})
}

// A next owner that has the brought server calls it.
func TestATakenOverRunCallsTheServerThatWasBrought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, again := &stand{tool: "read_mine", credentials: "mine", work: untilItEnds}, &stand{tool: "read_mine", credentials: "mine"}
		w := &town{}
		text, end := w.takenOver(t, from(w.wants("p", "k", "h"), mine.brought("mine")), again.brought("mine"))
		if text != "mine" || end.Reason != event.Complete || again.calls.Load() != 1 {
			t.Errorf("the run ended with %s and says %q", end.Reason, text)
		}
	})
}

// A run that had no tools yet does not begin with others than its request asked for.
func TestARunIsLostWithoutTheServerThatItsRequestBrought(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine, orgs := &stand{tool: "read_mine", credentials: "mine", listing: untilItEnds}, &stand{tool: "read_mine", credentials: "org"}
		w := &town{}
		_, end := w.takenOver(t, from(w.wants("p", "k", "h"), mine.brought("mine")), catalog.Server{Name: "mine", Source: orgs})
		if end.Reason != event.Lost || orgs.calls.Load() != 0 {
			t.Errorf("the run ended with %s, and made %d calls", end.Reason, orgs.calls.Load())
		}
	})
}
