package route

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// lister is a Model that only lists. It may be changed between fetches.
type lister struct {
	model.Model // nil
	list        []model.Listed
	err         error
	wait        func(ctx context.Context) // before it answers
	calls       atomic.Int64
}

func lists(names ...string) *lister {
	l := &lister{}
	for _, n := range names {
		l.list = append(l.list, model.Listed{Name: n})
	}
	return l
}

// readBytes is what reading a list takes. The lister leaves it to the Listing to
// release it.
const readBytes = 8 << 20

// List implements model.Lister.
func (l *lister) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	l.calls.Add(1)
	if err := memory.Acquire(readBytes); err != nil {
		return err
	}
	if l.wait != nil {
		l.wait(ctx)
	}
	if err := ctx.Err(); err != nil {
		return &model.Error{Class: model.Gone, Err: err}
	}
	for _, m := range l.list {
		if !yield(m) {
			break
		}
	}
	return l.err
}

// record is the log of a Listing.
type record struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

// take returns the messages of the lines since the last look.
func (r *record) take() (messages []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range strings.Lines(r.text.String()) {
		_, rest, _ := strings.Cut(line, "level=")
		messages = append(messages, strings.TrimSpace(rest))
	}
	r.text.Reset()
	return messages
}

// listing returns a Listing of the providers, and its log.
func listing(t *testing.T, o ListingOptions, providers ...Provider) (*Listing, *record) {
	t.Helper()
	log := &record{}
	o.Log = slog.New(slog.NewTextHandler(log, nil))
	l := NewListing(New(providers), o)
	t.Cleanup(l.Close)
	return l, log
}

// said is how the tests write names: provider=name, with the time if there is one.
func said(names []Known) (out []string) {
	for _, k := range names {
		text := k.Provider + "=" + k.Name
		if !k.Created.IsZero() {
			text += fmt.Sprintf("@%d", k.Created.Unix())
		}
		out = append(out, text)
	}
	return out
}

func TestTheNamesThatCanBeAskedFor(t *testing.T) {
	at := func(name string, created int64) model.Listed {
		return model.Listed{Name: name, Created: time.Unix(created, 0)}
	}
	onlyModel := struct{ model.Model }{}
	for _, tt := range []struct {
		name      string
		providers []Provider
		want      []string
	}{
		{"what the globs match, in alphabetical order", []Provider{
			{Name: "p", Models: []string{"gpt-*"}, Model: lists("o3", "gpt-5", "gpt-4", "xgpt-5")},
		}, []string{"p=gpt-4", "p=gpt-5"}},
		{"exact names first, listed or not", []Provider{
			{Name: "p", Models: []string{"z", "gpt-*", "gpt-9"}, Model: &lister{list: []model.Listed{at("gpt-5", 1), at("z", 2)}}},
		}, []string{"p=z@2", "p=gpt-9", "p=gpt-5@1"}},
		{"no globs, no question", []Provider{{Name: "p", Models: []string{"a"}, Model: lists("a", "b")}}, []string{"p=a"}},
		{"a provider that cannot list", []Provider{
			{Name: "p", Models: []string{"a", "*"}, Model: onlyModel}, {Name: "q", Models: []string{"b*"}, Model: lists("b1")},
		}, []string{"p=a", "p=b1"}}, // p gets the request for b1, since its glob matches
		{"the same name at two providers", []Provider{
			{Name: "p", Models: []string{"*"}, Model: lists("m")}, {Name: "q", Models: []string{"*"}, Model: lists("m", "n")},
		}, []string{"p=m", "p=n"}},
		{"an exact name goes to who has it exactly", []Provider{
			{Name: "p", Models: []string{"*"}, Model: lists("m")}, {Name: "q", Models: []string{"m"}, Model: lists("m")},
		}, []string{"q=m"}},
		{"a name that means another provider", []Provider{
			{Name: "openai", Models: []string{"gpt-*"}, Model: lists("gpt-5")}, {Name: "router", Models: []string{"*"}, Model: lists("openai/gpt-5", "meta/llama")},
		}, []string{"openai=gpt-5", "router=meta/llama"}},
		{"an exact name that means another provider", []Provider{
			{Name: "one", Models: []string{"a"}, Model: lists()}, {Name: "two", Models: []string{"one/b"}, Model: lists()},
		}, []string{"one=a", "two=one/b"}},
		{"when a model was made", []Provider{
			{Name: "p", Models: []string{"a", "*"}, Model: &lister{list: []model.Listed{at("a", 1), at("b", 2), {Name: "c"}}}},
			{Name: "q", Models: []string{"*"}, Model: &lister{list: []model.Listed{at("b", 3), at("c", 4)}}},
		}, []string{"p=a@1", "p=b@2", "p=c@4"}},
		{"names twice, without text, hidden and long", []Provider{
			{Name: "p", Models: []string{"*"}, Model: lists("a", "a", "", "b\x1b[31m", "c\u200b", "d\xff", "e\n", strings.Repeat("x", maxListedName), strings.Repeat("y", maxListedName+1))},
		}, []string{"p=a", "p=" + strings.Repeat("x", maxListedName)}},
		{"nothing", nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l, _ := listing(t, ListingOptions{}, tt.providers...)
			names := l.Names(t.Context())
			if diff := cmp.Diff(tt.want, said(names)); diff != "" {
				t.Error(diff)
			}
			for _, k := range names { // each name is found as it is listed
				if got, ok := l.Find(t.Context(), k.Name); !ok || got != k {
					t.Errorf("%q is found as %+v, %v, and listed as %+v", k.Name, got, ok, k)
				}
			}
		})
	}
}

func TestANameIsFoundUnlessNobodyListsIt(t *testing.T) {
	down := &lister{err: errors.New("down")}
	l, _ := listing(t, ListingOptions{},
		Provider{Name: "p", Models: []string{"exact", "gpt-*", "both-*"}, Model: lists("gpt-5", "o3")},
		Provider{Name: "q", Models: []string{"down-*", "both-*"}, Model: down},
	)
	for name, want := range map[string]string{
		"gpt-5":      "p=gpt-5",
		"gpt-6":      "", // p would have listed it
		"exact":      "p=exact",
		"p/gpt-5":    "p=p/gpt-5",
		"p/gpt-6":    "",
		"p/o3":       "p=p/o3", // no glob matches it: it is not in the list that is kept
		"p/exact":    "p=p/exact",
		"down-1":     "q=down-1",
		"q/anything": "q=q/anything",
		"both-1":     "p=both-1", // q may have it
		"other":      "",
		"":           "",
	} {
		got := ""
		if k, ok := l.Find(t.Context(), name); ok {
			got = said([]Known{k})[0]
		}
		if got != want {
			t.Errorf("%q is found as %q, want %q", name, got, want)
		}
	}
}

func TestAListIsKeptAndAFailureKeepsTheLastOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := lists("a")
		l, log := listing(t, ListingOptions{}, Provider{Name: "p", Models: []string{"x", "*"}, Model: p})
		step := func(after time.Duration, calls int64, want []string, lines ...string) {
			t.Helper()
			time.Sleep(after)
			got := said(l.Names(t.Context()))
			if !slices.Equal(got, want) || p.calls.Load() != calls {
				t.Errorf("%v after %d calls, want %v after %d", got, p.calls.Load(), want, calls)
			}
			for i, line := range log.take() {
				if i >= len(lines) || !strings.HasPrefix(line, lines[i]) {
					t.Errorf("the log has %s, want %q", line, lines)
				}
			}
		}
		before, after := []string{"p=x", "p=a"}, []string{"p=x", "p=b"}
		step(0, 1, before)
		p.list = lists("b").list
		step(listTTL-1, 1, before)
		step(1, 2, after)
		p.list, p.err = lists("c").list, errors.New("broken\xff") // what came before the failure is not used
		step(listTTL, 3, after, `WARN msg=model_list_unavailable provider=p error=broken still_listed=1`)
		step(0, 3, after)
		step(listRetry-1, 3, after)
		step(1, 4, after)
		p.err = &model.Error{Class: model.Target, Status: 401, Credential: true, Message: "wrong key sk-123"}
		step(listRetry, 5, after)
		p.list, p.err = lists("b").list, nil
		step(listRetry, 6, after, `INFO msg=model_list_available provider=p models=1`)
		p.err = &model.Error{Class: model.Target, Status: 401, Credential: true, Message: "wrong key sk-123"}
		step(listTTL, 7, after, `WARN msg=model_list_unavailable provider=p error="the provider refuses the gateway's credential: check its api_key"`)
	})
}

func TestCallersShareAFetchThatOutlivesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := lists("a")
		p.wait = func(context.Context) { time.Sleep(time.Second) }
		l, _ := listing(t, ListingOptions{}, Provider{Name: "p", Models: []string{"*"}, Model: p})
		first, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			if got := l.Names(first); len(got) != 0 {
				t.Errorf("who left got %v", got)
			}
		})
		synctest.Wait()
		for range 20 {
			all.Go(func() {
				if got := said(l.Names(t.Context())); !slices.Equal(got, []string{"p=a"}) {
					t.Errorf("who stayed got %v", got)
				}
			})
		}
		synctest.Wait()
		leave()
		all.Wait()
		if n := p.calls.Load(); n != 1 {
			t.Errorf("%d fetches", n)
		}
	})
}

func TestAProviderThatHangsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := lists("a")
		hangs.wait = func(ctx context.Context) { <-ctx.Done() }
		l, log := listing(t, ListingOptions{}, Provider{Name: "p", Models: []string{"x", "a*"}, Model: hangs}, Provider{Name: "q", Models: []string{"b*"}, Model: lists("b1")})
		begun := time.Now()
		if got := said(l.Names(t.Context())); !slices.Equal(got, []string{"p=x", "q=b1"}) || time.Since(begun) != listTimeout {
			t.Errorf("%v after %v", got, time.Since(begun))
		}
		if got := log.take(); len(got) != 1 || !strings.Contains(got[0], `error="no answer within 5s"`) {
			t.Errorf("the log has %q", got)
		}
		begun = time.Now()
		if l.Names(t.Context()); time.Since(begun) != 0 {
			t.Errorf("the next caller waited for %v", time.Since(begun))
		}
	})
}

func TestALongListIsCut(t *testing.T) {
	long := &lister{}
	for i := range 100_000 {
		long.list = append(long.list, model.Listed{Name: fmt.Sprintf("m-%06d", i)})
	}
	synctest.Test(t, func(t *testing.T) {
		memory := memlimit.New(memlimit.Options{})
		l, log := listing(t, ListingOptions{Memory: memory}, Provider{Name: "p", Models: []string{"x", "m-*"}, Model: long})
		for range 3 {
			if got := len(l.Names(t.Context())); got != maxListed+1 {
				t.Errorf("%d names", got)
			}
			time.Sleep(listTTL)
		}
		if got := log.take(); len(got) != 1 || !strings.HasPrefix(got[0], "WARN msg=model_list_cut provider=p") {
			t.Errorf("the log has %q", got)
		}
		if held := memory.Held(); held < maxListed*listedBytes || held > 2*maxListed*listedBytes {
			t.Errorf("%d bytes are charged", held)
		}
		if _, ok := l.Find(t.Context(), "m-099999"); !ok {
			t.Error("a name that may be in the part that was left out is not found")
		}
		l.Close()
		if held := memory.Held(); held != 0 {
			t.Errorf("%d bytes are charged after the end", held)
		}
		if got := len(l.Names(t.Context())); got != 1 {
			t.Errorf("%d names after the end", got)
		}
	})
}

func TestNamesThatAProviderDoesNotServeCountForNoBound(t *testing.T) {
	long := &lister{}
	for i := range 2 * maxListed {
		long.list = append(long.list, model.Listed{Name: fmt.Sprintf("m-%06d", i)})
	}
	long.list = append(long.list, model.Listed{Name: "gpt-5"})
	l, log := listing(t, ListingOptions{}, Provider{Name: "p", Models: []string{"gpt-*"}, Model: long})
	if got := said(l.Names(t.Context())); !slices.Equal(got, []string{"p=gpt-5"}) || log.take() != nil {
		t.Errorf("%v", got)
	}
}

func TestAListForWhichThereIsNoMemoryIsAFailure(t *testing.T) {
	for name, bound := range map[string]int64{"for reading it": readBytes - 1, "for keeping it": readBytes + 2<<10} {
		memory := memlimit.New(memlimit.Options{Run: bound})
		p := &lister{}
		for i := range 100 {
			p.list = append(p.list, model.Listed{Name: fmt.Sprintf("m-%d", i)})
		}
		l, log := listing(t, ListingOptions{Memory: memory}, Provider{Name: "p", Models: []string{"x", "*"}, Model: p})
		if got := said(l.Names(t.Context())); !slices.Equal(got, []string{"p=x"}) {
			t.Errorf("%s: %v", name, got)
		}
		if got := log.take(); len(got) != 1 || !strings.Contains(got[0], "model_list_unavailable") || memory.Held() != 0 {
			t.Errorf("%s: the log has %q, and %d bytes are charged", name, got, memory.Held())
		}
	}
}

func TestCloseEndsAFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := lists("a")
		hangs.wait = func(ctx context.Context) { <-ctx.Done() }
		memory := memlimit.New(memlimit.Options{})
		l, log := listing(t, ListingOptions{Memory: memory}, Provider{Name: "p", Models: []string{"*"}, Model: hangs})
		var all sync.WaitGroup
		all.Go(func() { l.Names(t.Context()) })
		synctest.Wait()
		begun := time.Now()
		l.Close()
		all.Wait()
		l.Names(t.Context())
		if time.Since(begun) != 0 || hangs.calls.Load() != 1 || log.take() != nil || memory.Held() != 0 {
			t.Errorf("%v, %d fetches, %d bytes are charged", time.Since(begun), hangs.calls.Load(), memory.Held())
		}
	})
}

// After Replace the names are those of the new providers, and the lists of the others
// are released, also one that is fetched meanwhile.
func TestOtherProvidersHaveOtherNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := lists("a"), lists("b")
		slow.wait = func(context.Context) { time.Sleep(time.Second) }
		memory := memlimit.New(memlimit.Options{})
		l, log := listing(t, ListingOptions{Memory: memory}, Provider{Name: "slow", Models: []string{"*"}, Model: slow}, Provider{Name: "quick", Models: []string{"b*"}, Model: quick})
		var all sync.WaitGroup
		all.Go(func() { l.Names(t.Context()) })
		synctest.Wait()
		l.Replace([]Provider{{Name: "new", Models: []string{"x", "c*"}, Model: lists("c", "d")}})
		all.Wait()
		if held := memory.Held(); held != 0 {
			t.Errorf("%d bytes are charged for lists that nobody uses", held)
		}
		if got := said(l.Names(t.Context())); !slices.Equal(got, []string{"new=x", "new=c"}) {
			t.Errorf("the names are %v", got)
		}
		if _, found := l.Find(t.Context(), "a"); found {
			t.Error("a model of a provider that was removed is found")
		}
		if got := l.router.Resolve("c"); len(got) != 1 || got[0].Provider != "new" {
			t.Errorf("requests go to %v", got)
		}
		if got := log.take(); got != nil {
			t.Errorf("the log has %q", got)
		}
	})
}

// The names are read while lists are replaced: for the race detector.
func TestNamesAreReadWhileListsChange(t *testing.T) {
	var clock atomic.Int64
	now := func() time.Time { return time.Unix(clock.Add(int64(listTTL/time.Second)), 0) } // every look finds all lists due
	l, _ := listing(t, ListingOptions{Now: now}, Provider{Name: "p", Models: []string{"x", "*"}, Model: lists("a", "b")}, Provider{Name: "q", Models: []string{"*"}, Model: lists("b", "c")})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if names := said(l.Names(t.Context())); names[0] != "p=x" {
					t.Errorf("%v", names)
				}
				l.Find(t.Context(), "c")
			}
		})
	}
	all.Wait()
}
