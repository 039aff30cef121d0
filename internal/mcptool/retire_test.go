package mcptool

import (
	"errors"
	"net/http"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

// streaming makes a fake server announce changes on a stream that stays open.
// It returns the number of streams that are open.
func streaming(f *fake) (open func() int) {
	announcing(f)
	n := 0
	f.override[http.MethodGet] = func(w http.ResponseWriter, r *http.Request) {
		asEvents(w)
		_ = http.NewResponseController(w).Flush()
		f.mu.Lock()
		n++
		f.mu.Unlock()
		<-r.Context().Done()
		f.mu.Lock()
		n--
		f.mu.Unlock()
	}
	return func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return n
	}
}

func TestARetiredClientKeepsNoSession(t *testing.T) {
	f := newFake(t)
	open := streaming(f)
	_, set := onChange()
	c := f.client(set)
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the stream of notifications", func() bool { return open() == 1 })
	c.Retire()
	c.Retire()
	until(t, "the end of the stream", func() bool { return open() == 0 })
	until(t, "the end of the session", func() bool { return f.count(http.MethodDelete) == 1 })

	// A run that began with it still calls it, and leaves nothing behind.
	if r, err := named(c, "echo").Call(t.Context(), toolCall()); err != nil || r.IsError {
		t.Fatal(r, err)
	}
	until(t, "the end of the second session", func() bool { return f.count(http.MethodDelete) == 2 })
	if n := f.count(http.MethodGet); n != 1 {
		t.Errorf("a retired client has opened %d streams, want the first one only", n)
	}
}

func TestARetiredClientFinishesItsCalls(t *testing.T) {
	f := newFake(t)
	arrived, finish := make(chan struct{}, 2), make(chan struct{})
	f.override["slow"] = func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-finish
		say("done")(w, r)
	}
	c := f.client()
	results := make(chan tool.Result, 2)
	for range 2 {
		go func() {
			r, err := named(c, "slow").Call(t.Context(), toolCall())
			if err != nil {
				t.Error(err)
			}
			results <- r
		}()
	}
	<-arrived
	<-arrived
	c.Retire()
	finish <- struct{}{}
	<-results
	if n := f.count(http.MethodDelete); n != 0 {
		t.Errorf("%d farewells while a call is under way", n)
	}
	finish <- struct{}{}
	if r := <-results; r.IsError || textOf(r) != "done" {
		t.Errorf("%+v", r)
	}
	until(t, "the end of the session", func() bool { return f.count(http.MethodDelete) == 1 })
}

func TestAKilledClientWaitsForNoFarewell(t *testing.T) {
	f := newFake(t)
	arrived := make(chan struct{})
	f.override[http.MethodDelete] = func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}
	c := f.client()
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Retire()
	<-arrived
	c.Kill()
	if _, err := c.List(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("later list: %v", err)
	}
}
