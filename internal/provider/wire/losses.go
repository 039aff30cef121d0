package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

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

// Refuse notes a value that the dialect cannot take. The first one counts. Another
// provider may take it.
func (l *Losses) Refuse(param, message string) {
	if l.Refused == nil {
		l.Refused = &model.Error{Class: model.Target, Param: param, Message: param + ": " + message}
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
