package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Losses are what a dialect notes while it writes a request: what it leaves out, and
// what it cannot take. The zero value has none.
type Losses struct {
	Hidden  []string     // tools of the gateway that are not offered
	Refused *model.Error // nil = the dialect takes the request

	dropped []string
}

// Drop notes the name of something that is left out or changed, if it is.
func (l *Losses) Drop(name string, left bool) {
	if left {
		l.dropped = append(l.dropped, name)
	}
}

// Dropped returns the names, as [model.Translator] says.
func (l *Losses) Dropped() []string {
	slices.Sort(l.dropped)
	return slices.Compact(l.dropped)
}

// LeaveOut notes that tool i of the request is not offered. The client hears of its own
// tools; those of the gateway are hidden.
func (l *Losses) LeaveOut(req *model.Request, i int) {
	if own := req.Tools[i]; own.Native != nil {
		l.Drop(fmt.Sprintf("tools[%d]", i), true)
	} else {
		l.Hidden = append(l.Hidden, own.Name)
	}
}

// DropItem notes what no dialect but the client's has of an item.
func (l *Losses) DropItem(req *model.Request, it *item.Item) {
	l.Drop(NameOf(req, MemberItemName), it.Kind == item.Message && it.Name != "")
	l.Drop(NameOf(req, MemberItems), it.Kind == item.Other && it.Native.Dialect == req.Dialect)
}

// DropSchema notes the keywords that are left out of the schema of the answer.
func (l *Losses) DropSchema(req *model.Request, keywords []string) {
	for _, name := range keywords {
		l.Drop(NameOf(req, MemberSchema)+"."+name, true)
	}
}

// DropSettings notes the settings that the dialects do not share, but for those that are taken, and the
// client's members that no dialect but its own has. A request that asks for nothing to be stored loses nothing.
func (l *Losses) DropSettings(req *model.Request, taken ...string) {
	drop := func(name string, left bool) { l.Drop(name, left && !slices.Contains(taken, name)) }
	drop("metadata", len(req.Metadata) > 0)
	drop("user", req.User != "")
	drop("seed", req.Seed != nil)
	drop(NameOf(req, MemberVerbosity), req.Verbosity != "")
	drop("presence_penalty", req.PresencePenalty != nil && *req.PresencePenalty != 0)
	drop("frequency_penalty", req.FrequencyPenalty != nil && *req.FrequencyPenalty != 0)
	for _, p := range req.Params {
		stored := p.Name == "store" && string(p.Value) == "false"
		unknown := p.Name == TierMember && Tier(req) == "" // a tier that only the client's dialect has
		l.Drop(p.Name, !p.Typed && !stored && (unknown || !slices.Contains(taken, p.Name)))
	}
}

// Refuse notes a value that the dialect cannot take. The first one counts. Another
// provider may take it.
func (l *Losses) Refuse(param, message string) {
	if l.Refused == nil {
		l.Refused = &model.Error{Class: model.Target, Param: param, Message: param + ": " + message}
	}
}

// Write returns a request as [Body] does, unless the dialect cannot take it.
func (l *Losses) Write(request any) ([]byte, error) {
	if l.Refused != nil {
		return nil, l.Refused
	}
	return Body(request)
}

// LogHidden notes in the log, in the first turn, which tools are not offered because of what the provider refuses.
func (l *Losses) LogHidden(ctx context.Context, log *slog.Logger, req *model.Request, refused string) {
	if len(l.Hidden) > 0 && l.Refused == nil && item.LastTurn(req.Items) == 0 {
		log.WarnContext(ctx, "tools are not offered: the provider refuses "+refused, "tools", l.Hidden)
	}
}

// Body returns a request as JSON without escapes for HTML. Equal requests give equal
// bytes.
func Body(request any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(request); err != nil {
		return nil, &model.Error{Class: model.Invalid, Message: "the request cannot be written as JSON", Err: err}
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
