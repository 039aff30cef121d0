package surface

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Thing is what a request is about: the answers to errors of a store name it.
type Thing struct {
	Kind  string // such as "agent"; "" = the request is about nothing that can be missing
	ID    string // as the request has it; "" = it is not named, or has a Name
	Name  string // of a thing that is found by its name
	Param string // where the request names a thing that is missing; "" = in the path
	Hint  string // what helps if it is missing; "" = nothing
}

// Missing returns the error of a thing that does not exist for the caller.
func (t Thing) Missing() error {
	text := fmt.Sprintf("there is no %s with this id", t.Kind)
	if t.ID != "" {
		text = fmt.Sprintf("there is no %s with the id %.80q", t.Kind, t.ID)
	} else if t.Name != "" {
		text = fmt.Sprintf("there is no %s called %q", t.Kind, t.Name)
	}
	if t.Hint != "" {
		text += "; " + t.Hint
	}
	return fault.New(fault.NotFound, "not_found", "%s", text).In(t.Param)
}

// Taken returns the error of a name that another thing of the kind has.
func (t Thing) Taken() error {
	if t.Name != "" {
		return fault.New(fault.Conflict, "exists", "the %s %q already exists; choose another name", t.Kind, t.Name)
	}
	return fault.New(fault.Conflict, "exists", "another %s already has this name; choose another name", t.Kind).In("name")
}

// Declared returns the error of a change of something that the configuration file declares.
func Declared(kind, name string) error {
	return fault.New(fault.Conflict, "declared", "the %s %q is declared in the configuration file and can only be changed there", kind, name)
}

// changed returns the error of a thing that another request has changed at the same time.
func (t Thing) changed(err error) error {
	f := fault.New(fault.Conflict, "changed_meanwhile", "another request changed the %s %q at the same time; "+
		"read it again and repeat the request", t.Kind, t.Name+t.ID)
	f.Err = err
	return f
}

// Refused returns the error for the caller if a store has refused a request about the thing, or a rule a member of
// its body. Any other error, and nil, it returns unchanged.
func Refused(err error, about Thing) error {
	wrong, isField := errors.AsType[*agent.FieldError](err)
	left, isLeft := errors.AsType[*org.LeftError](err)
	used, isUsed := errors.AsType[*agent.ToolInUseError](err)
	switch {
	case isField:
		return InvalidValue(wrong.Field, "%s", strings.TrimPrefix(wrong.Error(), ": "))
	case isLeft:
		return fault.New(fault.Conflict, "org_id_used", "%v", left)
	case isUsed:
		return fault.New(fault.Conflict, "in_use", "%v", used)
	case errors.Is(err, agent.ErrToolMissing):
		return fault.New(fault.NotFound, "not_found", "%v; it was deleted at the same time", err)
	case about.Kind == "":
		return err
	case errors.Is(err, org.ErrNotFound):
		return about.Missing()
	case errors.Is(err, org.ErrExists):
		return about.Taken()
	case errors.Is(err, org.ErrChanged):
		return about.changed(err)
	}
	return err
}

// refusedFile is [Refused] for the errors of buckets.
func refusedFile(log *slog.Logger, err error) error {
	fatal, isFatal := errors.AsType[tool.Blocked](err)
	argument, isArgument := errors.AsType[*blob.ArgumentError](err)
	limit, isLimit := errors.AsType[*blob.LimitError](err)
	refused, isRefused := errors.AsType[*blob.RefusedError](err)
	switch {
	case isFatal:
		reason, _ := fatal.Blocked()
		message := "the outbound policy refuses the endpoint: " + reason
		return &fault.Error{Code: fault.Forbidden, Reason: "outbound_ssrf_blocked", Message: message, Err: err}
	case isArgument:
		return InvalidValue(argument.Argument, "%v", argument)
	case isLimit:
		return &fault.Error{Code: fault.Conflict, Reason: "cap_reached", Message: limit.Error(), Setting: limit.Setting}
	case isRefused:
		log.Warn("a bucket has not answered a request", "error", refused.Why, "cause", refused.Err)
		return &fault.Error{Code: fault.Upstream, Reason: "bucket_failed", Message: refused.Why, Setting: refused.Setting, Err: err}
	case errors.Is(err, blob.ErrNotFound):
		return fault.New(fault.NotFound, "not_found", "no such file")
	case errors.Is(err, blob.ErrNoBucket), errors.Is(err, blob.ErrDeleted):
		return fault.New(fault.NotFound, "not_found", "no such bucket")
	}
	return err
}
