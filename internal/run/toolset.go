package run

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/model"
)

// toolSet is the tools of a run: those of the client, those of the gateway, and the tool
// that reads truncated results once there is one.
type toolSet struct {
	run     *runState
	catalog *catalog.Set     // the gateway's; set by Discover, or by the next owner
	choice  model.ToolChoice // of the caller, with the names of the catalogue
	reader  ResultReader     // nil = truncated results cannot be read

	usable struct { // what now has returned
		of, set *catalog.Set
		by      org.Access
	}
}

// now returns the gateway's tools that the key of the run may use now.
func (t *toolSet) now() *catalog.Set {
	access := t.run.accessNow()
	if access.IsFull() {
		return t.catalog
	}
	if u := &t.usable; u.of != t.catalog || !u.by.Equal(access) {
		u.of, u.by, u.set = t.catalog, access, t.catalog.Within(access)
	}
	return t.usable.set
}

// choose sets the caller's choice, once the catalogue is set.
func (t *toolSet) choose() {
	t.choice = t.run.req.ToolChoice
	of := t.run.req.OnlyOf
	if len(of) == 0 {
		return
	}
	if t.choice.Mode == model.ChooseNamed {
		// No tool has the name with a slash.
		t.choice.Name = cmp.Or(t.catalog.Choice(of[0].Server, of[0].Tool), loop.LabelOf(of[0].Server)+"/"+of[0].Tool)
		return
	}
	t.choice.Only = append([]string{}, t.choice.Only...)
	for _, tool := range of {
		t.choice.Only = append(t.choice.Only, t.catalog.Called(tool.Server, tool.Tool)...)
	}
}

// known returns the tools as the rules see them.
func (t *toolSet) known() loop.Tools {
	gateway := func(name string) (server string, ok bool) {
		e := t.catalog.Lookup(name)
		if e == nil {
			return "", false
		}
		return e.Server, true
	}
	client := t.clientNames()
	for _, d := range t.run.req.Dispatched { // one that another server's tool displaces is the client's, and in conflict with it
		if e := t.catalog.Lookup(d.Name); e != nil && e.Server != loop.DispatchServer {
			client[d.Name] = true
		}
	}
	return loop.Tools{Client: client, Gateway: gateway, Offered: len(t.catalog.Offered()), Hosted: len(t.run.req.Hosted)}
}

// clientNames returns the names of the client's own tools.
func (t *toolSet) clientNames() map[string]bool {
	names := make(map[string]bool, len(t.run.req.ClientTools))
	for _, c := range t.run.req.ClientTools {
		names[c.Name] = true
	}
	return names
}

// rereadHint returns the sentence that tells the model how to read the rest of a truncated
// result; "" if it cannot.
func (t *toolSet) rereadHint(key loop.CallKey) string {
	if t.rereadIsTaken() {
		return ""
	}
	return fmt.Sprintf(" Read the rest with %s, id %q.", t.reader.Name(), resultID(t.run.lease.RunID, key))
}

// rereadIsTaken reports whether the model cannot read truncated results, because the client or a
// server has a tool with the name of the one that reads them, or because there is none.
func (t *toolSet) rereadIsTaken() bool {
	return t.reader == nil || t.clientNames()[t.reader.Name()] || t.catalog.Lookup(t.reader.Name()) != nil
}

// allowed returns the names among which tool_choice lets the model choose; nil = all. The
// rest of a result of an allowed tool can be read, too.
func (t *toolSet) allowed() []string {
	only := t.choice.Only
	if only == nil || !t.run.state().Truncated || t.rereadIsTaken() {
		return only
	}
	return append(slices.Clip(only), t.reader.Name())
}

// callable returns the names among which the latest turn had to choose; nil = all. A choice
// of one tool is for the first turn.
func (t *toolSet) callable() []string {
	if t.choice.Mode == model.ChooseNamed && t.choice.Name != "" && t.run.state().Turn.Round == 0 {
		return []string{t.choice.Name}
	}
	return t.allowed()
}

// visible returns the gateway's tools that the key of the run may use now, with the one that
// reads truncated results once there is one.
func (t *toolSet) visible() *catalog.Set { return t.withReread(t.now()) }

// withReread returns the set with the tool that reads truncated results, once there is one.
func (t *toolSet) withReread(set *catalog.Set) *catalog.Set {
	if !t.run.state().Truncated || t.reader == nil || t.clientNames()[t.reader.Name()] {
		return set
	}
	with, err := set.WithSource(t.run.ctx, t.reader.Of(t.run.results.full, t.run.policy().ResultMaxBytes))
	if err != nil {
		t.run.log.Error("the tool that reads truncated results is not offered", "tool", t.reader.Name(), "error", err)
		return set
	}
	return with
}

// toolless reports whether the model of a target takes no tools.
func (t *toolSet) toolless(target int) bool { return takesNoTools(t.run.req.Targets[target]) }

func takesNoTools(t route.Target) bool {
	taker, ok := t.Client.(model.ToolTaker)
	return ok && !taker.TakesTools(t.Model)
}

// ofRequest reports whether an offered tool is one of the request: a function of the client, or a tool of a server that
// the request declares.
func (t *toolSet) ofRequest(name string) bool {
	e := t.catalog.Lookup(name)
	return e == nil && (t.reader == nil || name != t.reader.Name() || t.rereadIsTaken()) || e != nil && (e.Server == loop.DispatchServer || t.run.state().Shown(e.Server))
}

// offered returns the tools that a model call offers: the client's own, and the gateway's.
// reread adds the tool that reads truncated results, if there is one.
func (t *toolSet) offered(reread bool) []model.Tool {
	gateway := t.now().Offered()
	if reread {
		gateway = t.visible().Offered()
	}
	out := make([]model.Tool, 0, len(t.run.req.ClientTools)+len(gateway))
	out = append(append(out, t.run.req.ClientTools...), gateway...)
	t.describe(out[len(t.run.req.ClientTools):])
	for _, d := range t.run.req.Dispatched { // the model sees them as the client wrote them
		if e := t.catalog.Lookup(d.Name); e == nil || e.Server != loop.DispatchServer {
			continue
		}
		for i := range out {
			if out[i].Name == d.Name {
				out[i] = d
			}
		}
	}
	return out
}

// describe adds to the descriptions of tools what the request makes them say.
func (t *toolSet) describe(gateway []model.Tool) {
	if len(t.run.policy().Hosted) == 0 {
		return
	}
	files := t.run.files()
	for i := range gateway {
		e := t.catalog.Lookup(gateway[i].Name)
		if e == nil {
			continue
		}
		if d, is := toolexec.WithFiles(e.Tool, files).(toolexec.Describer); is {
			gateway[i].Description += d.Describe(t.run.policy().OptionsOf(e.Server, e.Name))
		}
	}
}

// listed returns the row with the tools that the run lists for its caller, and sets the
// fact's reference to it. It is charged to memory.
func (t *toolSet) listed(body *loop.Catalogued, memory *memlimit.Share) ([]journal.Row, error) {
	var list []event.ListedServer
	for _, server := range body.Servers {
		if server.Announced {
			list = append(list, event.ListedServer{Server: loop.LabelOf(server.Label), Tools: t.catalog.Of(server.Label), Error: server.Error})
		}
	}
	if list == nil {
		return nil, nil
	}
	row := t.run.events.List(list)
	body.ListedRef = row.Ref
	return []journal.Row{row}, memory.Acquire(eventlog.EventSize(event.ToolsListed{Servers: list}))
}

// row returns the row from which the next owner of the run restores the tools.
func (t *toolSet) row() journal.Row { return journal.Row{Ref: catalogRef, Value: t.catalog.Seal()} }

// called returns the fact's form of a call that the model has made.
func (t *toolSet) called(c model.Call) loop.TurnCall {
	call := loop.TurnCall{ProviderID: c.ID, Name: c.Name, Arguments: c.Arguments, Complete: c.Complete}
	if t.clientNames()[c.Name] {
		return call
	}
	switch e := t.visible().Callable(c.Name); {
	case e == nil:
		call.UnknownBytes = len(c.Name)
	case e.Name != c.Name:
		call.Tool = e.Name
	}
	return call
}
