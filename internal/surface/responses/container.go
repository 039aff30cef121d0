package responses

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
)

// container says where the code of a response runs. It is stored with the response, so that later ones find it.
type container struct {
	ID  string `json:"id,omitempty"` // "" = that of its run
	Key string `json:"key"`          // id of the API key of the response, which alone continues the container
}

// id returns the id of the container; "" = it is that of the run, or there is none.
func (c *container) id() string {
	if c == nil {
		return ""
	}
	return c.ID
}

// codeTool is a hosted tool code_interpreter or shell that the gateway answers.
type codeTool struct {
	at    string // in the request
	asked string // id of the container that it names; "" = none
	tool  surface.Hosted
}

// newCodeTool reads which container the tool names.
func newCodeTool(at string, raw json.RawMessage, h surface.Hosted) *codeTool {
	var w struct {
		Container   json.RawMessage  `json:"container"`
		Environment shellEnvironment `json:"environment"`
	}
	_ = json.Unmarshal(raw, &w) // it was decoded before
	c := &codeTool{at: at, tool: h, asked: w.Environment.ContainerID}
	_ = json.Unmarshal(w.Container, &c.asked) // an object names none
	return c
}

// asks returns the member that names a container.
func (c *codeTool) asks() string {
	if c.tool.Type == builtin.HostedShell {
		return c.at + ".environment.container_id"
	}
	return c.at + ".container"
}

// replays reports whether the tool reads items of the type that a client sends back.
func (c *codeTool) replays(kind string) bool {
	return kind == c.tool.Type+"_call" || c.tool.Type == builtin.HostedShell && kind == "shell_call_output"
}

// replay returns a call that ran code for an earlier response, and its result, from an item that the client sends back. It is never
// made again. turn is the number of the model call that asked for it. The item does not say in which language the code is.
func (c *codeTool) replay(at string, raw json.RawMessage, turn int) ([]item.Item, error) {
	if c.tool.Type == builtin.HostedShell {
		return c.replayShell(at, raw, turn)
	}
	var w struct {
		ID      string                        `json:"id"`
		Code    *string                       `json:"code"`
		Outputs []struct{ Type, Logs string } `json:"outputs"`
	}
	switch err := json.Unmarshal(raw, &w); {
	case err != nil:
		return nil, fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
	case w.ID == "":
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no id", at).In(at + ".id")
	}
	arguments, err := surface.Marshal(map[string]string{"code": deref(w.Code)})
	if err != nil {
		return nil, err
	}
	call := item.NewCall(w.ID, c.tool.Tool, string(arguments))
	call.Turn = turn
	result := "The client has not sent the output of this call."
	if w.Outputs != nil {
		var logs []string
		for _, o := range w.Outputs {
			if o.Type == "logs" {
				logs = append(logs, o.Logs)
			}
		}
		result = strings.Join(logs, "\n")
	}
	return []item.Item{call, item.NewResult(w.ID, result, false)}, nil
}

// containers finds the containers of stored responses. They are those of one key.
type containers interface {
	// named returns an error unless the container with the id can be continued.
	named(at, id string) error
	// of returns the container of what a request continues; "" = it has none.
	of(from conversation.Ref) (id string, err error)
}

// setContainer decides in which container the code of the request runs. It is called when all members are read.
func (d *decoder) setContainer() (err error) {
	if len(d.code) == 0 || d.containers == nil {
		return nil
	}
	id, at := "", ""
	for _, c := range d.code {
		if id != "" && c.asked != "" && c.asked != id {
			return fault.New(fault.Invalid, "invalid_value", "%s: the tools of the request name two containers; name one", c.asks()).In(c.asks())
		}
		if c.asked != "" {
			id, at = c.asked, c.asks()
		}
	}
	switch {
	case id != "":
		err = d.containers.named(at, id)
	case d.req.Continues.ID != "":
		id, err = d.containers.of(d.req.Continues)
	}
	if err != nil {
		return err
	}
	d.container, d.echo.container = &container{ID: id, Key: d.req.Principal}, id
	if id == "" {
		return nil
	}
	for _, c := range d.code {
		options := map[string]json.RawMessage{} // the tool has more than the container
		if err := json.Unmarshal(c.tool.Options, &options); err != nil {
			return err
		}
		if options["container"], err = surface.Marshal(id); err == nil {
			c.tool.Options, err = surface.Marshal(options)
		}
		if err != nil {
			return err
		}
		c.tool.Replace(d.hosted)
	}
	return nil
}

// keyContainers are the containers of the stored responses of a caller.
type keyContainers struct {
	stored *storedResponses
	ctx    context.Context //nolint:containedctx // it lives as long as the decoder of a request
	caller caller.Caller
}

func (k keyContainers) named(at, id string) error {
	runID, ok := file.RunOfContainer(id)
	var found string
	var err error
	if ok {
		found, err = k.ofResponse(conversation.SegmentID(runID, ""))
	}
	if err == nil && (!ok || found != id) {
		err = fault.New(fault.NotFound, "container_not_found", "%s: no stored response of this API key has the container %.100q; "+
			`use the container_id of a code_interpreter_call of a response that is stored, or {"type": "auto"}`, at, id).In(at)
	}
	return err
}

// maxLookedAt is in how many of the latest parts of a conversation a container is looked for.
const maxLookedAt = 20

func (k keyContainers) of(from conversation.Ref) (string, error) {
	if !from.Named {
		return k.ofResponse(from.ID)
	}
	c, err := k.stored.findConversation(k.ctx, k.caller, from.ID)
	if err != nil {
		return "", ignoreMissing(err)
	}
	parts := c.Parts[max(0, len(c.Parts)-maxLookedAt):]
	for _, part := range slices.Backward(parts) {
		var id string
		err := k.stored.reads.do(k.ctx, k.caller.Org.ID, func() error {
			c, err := conversation.FindPart(k.ctx, k.stored.store, k.caller.Org.ID, part)
			if err == nil && c != nil {
				id = k.in(c.RunID, c.RequestJSON)
			}
			return err
		})
		if err != nil || id != "" {
			return id, surface.Failed(k.stored.log, err)
		}
	}
	return "", nil
}

// ofResponse returns the container of a response; "" if it has none, is not stored or is of another key.
func (k keyContainers) ofResponse(id string) (containerID string, err error) {
	err = k.stored.reads.do(k.ctx, k.caller.Org.ID, func() error {
		kept, err := k.stored.findAny(k.ctx, k.caller, id)
		if err == nil {
			containerID = k.in(kept.RunID, kept.RequestJSON)
		}
		return err
	})
	return containerID, surface.Failed(k.stored.log, ignoreMissing(err))
}

// in returns the container in what is stored with the response of a run.
func (k keyContainers) in(runID string, requestJSON json.RawMessage) string {
	var w struct {
		Container *container `json:"container"`
	}
	if len(requestJSON) == 0 || json.Unmarshal(requestJSON, &w) != nil || w.Container == nil || w.Container.Key != k.caller.Principal.ID {
		return ""
	}
	if w.Container.ID != "" {
		return w.Container.ID
	}
	return file.ContainerOf(runID)
}

// ignoreMissing returns nil for an error that says that something is not stored: what continues it says so.
func ignoreMissing(err error) error {
	if err != nil && fault.From(err).Code == fault.NotFound {
		return nil
	}
	return err
}
