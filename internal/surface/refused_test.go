package surface

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// The errors of all stores become the answers of docs/errors.md in one place, with the thing that the request is about.
func TestErrorsOfStoresNameTheThing(t *testing.T) {
	named, numbered := Thing{Kind: "webhook", Name: "ops"}, Thing{Kind: "agent", ID: "agt_1"}
	hidden := Thing{Kind: "run", Param: "before", Hint: "GET /v1/runs lists them"}
	wrap := func(err error) error { return fmt.Errorf("store: %w", err) }
	for _, c := range []struct {
		err   error
		about Thing
		want  string
	}{
		{wrap(org.ErrNotFound), named, `404 not_found "": there is no webhook called "ops"`},
		{wrap(org.ErrNotFound), numbered, `404 not_found "": there is no agent with the id "agt_1"`},
		{wrap(org.ErrNotFound), hidden, `404 not_found "before": there is no run with this id; GET /v1/runs lists them`},
		{wrap(org.ErrExists), named, `409 exists "": the webhook "ops" already exists; choose another name`},
		{wrap(org.ErrExists), numbered, `409 exists "name": another agent already has this name; choose another name`},
		{wrap(org.ErrChanged), named,
			`409 changed_meanwhile "": another request changed the webhook "ops" at the same time; read it again and repeat the request`},
		{&agent.FieldError{Field: "hooks[0].type", Message: "no"}, numbered, `400 invalid_value "hooks[0].type": hooks[0].type: no`},
		{&agent.FieldError{Message: "no"}, Thing{}, `400 invalid_value "": no`},
		{&agent.ToolInUseError{Tool: "t", Agent: "a"}, numbered,
			`409 in_use "": the agent "a" has the tool "t"; remove it from the agent first`},
		{wrap(agent.ErrToolMissing), numbered,
			`404 not_found "": store: the custom tool does not exist; it was deleted at the same time`},
		{&blob.ArgumentError{Argument: "path", Why: "is empty"}, Thing{}, `400 invalid_value "path": path is empty`},
		{&blob.LimitError{What: "full", Setting: "s"}, Thing{}, `409 cap_reached "": full (s)`},
		{wrap(&blob.RefusedError{Why: "no answer"}), Thing{}, `502 bucket_failed "": no answer`},
		{wrap(blob.ErrNotFound), Thing{}, `404 not_found "": no such file`},
		{wrap(blob.ErrDeleted), Thing{}, `404 not_found "": no such bucket`},
		{wrap(org.ErrNotFound), Thing{}, `500 internal_error "": the gateway failed; its log says why`},
		{fault.New(fault.Invalid, "theirs", "m"), numbered, `400 theirs "": m`},
	} {
		f := fault.From(Failed(slog.New(slog.DiscardHandler), c.err, c.about))
		if got := fmt.Sprintf("%d %s %q: %s", statuses[f.Code], f.Reason, f.Param, f.Message); got != c.want {
			t.Errorf("%v about %v:\n%s, want\n%s", c.err, c.about, got, c.want)
		}
	}
	if err := Refused(wrap(org.ErrChanged), named); !errors.Is(err, org.ErrChanged) { // so that the change can be repeated
		t.Errorf("%v is not org.ErrChanged", err)
	}
}
