package run_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// listings returns the labels of the servers that the run has listed, with the names of
// their tools, and the calls that are shown, with the names that their server gives them.
func (d *diary) listings() (listed, shown, hidden []string) {
	for _, e := range d.events {
		switch e := e.(type) {
		case event.ToolsListed:
			for _, server := range e.Servers {
				line := server.Server + ":" + server.Error
				for _, tool := range server.Tools {
					line += " " + tool.Name
				}
				listed = append(listed, line)
			}
		case event.ToolStarted:
			if e.Shown {
				shown = append(shown, e.Server+"/"+e.Tool)
			} else {
				hidden = append(hidden, e.Server+"/"+e.Tool)
			}
		}
	}
	return listed, shown, hidden
}

// A run lists the tools of shown servers, in its events and in those that are read
// later from the store. It says nothing of the tools of hidden servers. // D20 L05
func TestOnlyShownServersAreListed(t *testing.T) {
	for _, grade := range []loop.Grade{loop.Durable, loop.Light} {
		t.Run(string(grade), func(t *testing.T) {
			mine, old := &stand{tool: "read mine", credentials: "mine"}, &stand{tool: "read_old", credentials: "old"}
			hidden := &stand{tool: "read_hidden", credentials: "hidden"}
			shown := func(s catalog.Server) catalog.Server { s.Shown = true; return s }
			w := &town{}
			req := from(w.wants("p", "k", "h"), catalog.Server{Name: "org", Source: hidden}, shown(mine.brought("mine")), shown(old.brought("old")))
			req.Listed, req.Policy.Grade = []string{"old"}, grade
			if grade == loop.Light {
				req.Key = nil
			}
			var live, stored diary
			r := w.gateway(t)
			if err := r.Run(t.Context(), req, &live); err != nil {
				t.Fatal(err)
			}
			listed, seen, unseen := live.listings()
			if !slices.Equal(listed, []string{"mine: read mine"}) {
				t.Errorf("listed %q", listed)
			}
			slices.Sort(seen)
			if !slices.Equal(seen, []string{"mine/read mine", "old/read_old"}) || !slices.Equal(unseen, []string{"org/"}) {
				t.Errorf("shown are %q, hidden %q", seen, unseen)
			}
			id := live.events[0].(event.Started).RunID
			if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &stored); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(without[event.CallDelta](live.events), without[event.CallDelta](stored.events)); diff != "" {
				t.Error("live (-), stored (+):", diff)
			}
			if _, isList := live.events[1].(event.ToolsListed); !isList {
				t.Errorf("the second event is %T", live.events[1])
			}
		})
	}
}

func without[T event.Event](events []event.Event) []event.Event {
	return slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { _, is := e.(T); return is })
}

// A call of a shown server that is not executed has the arguments that the model wrote.
func TestAShownCallThatIsNotExecutedHasItsArguments(t *testing.T) {
	mine := &stand{tool: "read_mine", credentials: "mine"}
	s := mine.brought("mine")
	s.Shown = true
	w := &town{}
	req := from(w.wants("p", "k", "h"), s)
	req.ToolChoice.Only = []string{"another"}
	var d diary
	if err := w.gateway(t).Run(t.Context(), req, &d); err != nil {
		t.Fatal(err)
	}
	for _, e := range d.events {
		if done, ok := e.(event.ToolDone); ok {
			if !done.Shown || done.Tool != "read_mine" || done.Arguments != "{}" || !strings.Contains(done.Text, "not among the allowed tools") {
				t.Errorf("%+v", done)
			}
			return
		}
	}
	t.Error("the call was not answered")
}

// A call of a tool that answers a hosted tool says so, in the run's events and in those that
// are read later from the store. Other calls of the server stay hidden, and a call of a shown
// server is one of that server.
func TestACallThatAnswersAHostedTool(t *testing.T) {
	for _, grade := range []loop.Grade{loop.Durable, loop.Light} {
		t.Run(string(grade), func(t *testing.T) {
			finds, other, mine := &stand{tool: "read_web", credentials: "web"}, &stand{tool: "read_other", credentials: "other"}, &stand{tool: "read_mine", credentials: "mine"}
			declared := mine.brought("mine")
			declared.Shown = true
			w := &town{}
			req := from(w.wants("p", "k", "h"), catalog.Server{Name: "web", Source: finds}, catalog.Server{Name: "other", Source: other}, declared)
			req.Policy.Grade = grade
			req.Policy.Hosted = []loop.HostedTool{
				{Type: "web_search", Server: "web", Tool: "read_web"}, {Type: "file_search", Server: "other", Tool: "another"},
				{Type: "code_interpreter", Server: "mine", Tool: "read_mine"},
			}
			if grade == loop.Light {
				req.Key = nil
			}
			var live, stored diary
			r := w.gateway(t)
			if err := r.Run(t.Context(), req, &live); err != nil {
				t.Fatal(err)
			}
			var started, done []string
			for _, e := range live.events {
				switch e := e.(type) {
				case event.ToolStarted:
					started = append(started, fmt.Sprint(e.Server, " ", e.Tool, " ", e.Hosted, " ", e.Shown))
				case event.ToolDone:
					done = append(done, fmt.Sprint(e.Server, " ", e.Tool, " ", e.Hosted, " ", e.Shown))
				}
			}
			slices.Sort(started)
			slices.Sort(done)
			want := []string{"mine read_mine  true", "other   false", "web read_web web_search false"}
			if !slices.Equal(started, want) || !slices.Equal(done, want) {
				t.Errorf("started %q, done %q", started, done)
			}
			id := live.events[0].(event.Started).RunID
			if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &stored); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(without[event.CallDelta](live.events), without[event.CallDelta](stored.events)); diff != "" {
				t.Error("live (-), stored (+):", diff)
			}
		})
	}
}
