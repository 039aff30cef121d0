package turnpike

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/model"
)

// Generate makes one model call. The tools of [Tools] are declared, and the calls that the model makes come
// back in Result.Calls. With Mode(Auto) it is a run of an agent with these tools.
func Generate(ctx context.Context, m model.Model, in Input, opts ...Option) (*Result, error) {
	a := &Agent{Model: m}
	return a.Run(ctx, in, append([]Option{Mode(Return)}, opts...)...)
}

// ask makes one model call whose tool calls the caller executes.
func (c *call) ask(ctx context.Context, sink sink) (*Result, error) {
	e := c.engine
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, c.failure(ctx, run.Performed{}, err)
	}
	set, err := e.catalog.For(ctx, orgID, servers, settings.ProgramCatalogTTL)
	if err != nil {
		return nil, c.failure(ctx, run.Performed{}, err)
	}
	p := c.settings(sink != nil)
	p.OneCall = true
	req := c.base(settings.Library(p))
	req.Relay = &run.Relay{Reason: run.RelayInternal}
	req.ClientTools = set.Offered()
	c.sink = sink
	done, err := e.here.Perform(ctx, req, c)
	return c.end(ctx, done, err)
}

// Into runs the agent and returns its answer as a T. The schema of the answer follows from T, as with
// tool.NewFunc, in place of the agent's Output. The answer is decoded as encoding/json does: a member that it does not have stays
// zero. If it is not a T, the error is a [*ValidationError] with the result. For a [Session] set Output, and decode Result.Text.
func Into[T any](ctx context.Context, a *Agent, in Input, opts ...Option) (T, *Result, error) {
	var out T
	schema, err := jsonschema.For[T](nil)
	if err != nil {
		return out, nil, invalid("schema of %s: %v", reflect.TypeFor[T](), err)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return out, nil, invalid("schema of %s: %v", reflect.TypeFor[T](), err)
	}
	format := model.Format{Type: "json_schema", Name: "answer", Schema: text}
	r, err := a.Run(ctx, in, append([]Option{func(o *options) { o.format = format }}, opts...)...)
	if err != nil {
		return out, nil, err
	}
	if err := json.Unmarshal([]byte(r.Text), &out); err != nil {
		message := fmt.Sprintf("the answer of the model is no %s: %v", reflect.TypeFor[T](), err)
		return out, r, &ValidationError{Message: message, status: http.StatusBadGateway, Partial: Partial{r}}
	}
	return out, r, nil
}
