package surfacetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// tap is a runner that keeps what the real one reports on its way to the surface.
type tap struct {
	inner  *run.Runner
	begin  time.Time
	events []timed
}

// timed is an event and how long after the request it came.
type timed struct {
	event.Event
	at time.Duration
}

// Run implements chat.Runner.
func (p *tap) Run(ctx context.Context, req *run.Request, sink eventlog.Sink) error {
	return p.inner.Run(ctx, req, tapped{p, sink})
}

// Dropped implements chat.Runner.
func (p *tap) Dropped(ctx context.Context, req *run.Request) ([]run.Dropped, error) {
	return p.inner.Dropped(ctx, req)
}

// Start implements surface.Runner.
func (p *tap) Start(ctx context.Context, req *run.Request) (string, error) {
	return p.inner.Start(ctx, req)
}

// CountInput implements surface.Runner.
func (p *tap) CountInput(ctx context.Context, req *run.Request) (int64, bool, error) {
	return p.inner.CountInput(ctx, req)
}

// runID names the run of the latest request; empty if there was none.
func (p *tap) runID() string {
	for _, e := range p.events {
		if s, ok := e.Event.(event.Started); ok {
			return s.RunID
		}
	}
	return ""
}

// tapped passes events on.
type tapped struct {
	*tap
	next eventlog.Sink
}

// Emit implements eventlog.Sink.
func (s tapped) Emit(at event.Position, e event.Event) error {
	s.events = append(s.events, timed{e, time.Since(s.begin)})
	return s.next.Emit(at, e)
}

// formatEvents writes one line for each event: when, what, and its fields that
// say something.
func formatEvents(events []timed) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%v %s ", e.at.Round(time.Millisecond), reflect.TypeOf(e.Event).Name())
		b.WriteString(formatFields(reflect.ValueOf(e.Event)))
		b.WriteByte('\n')
	}
	return b.String()
}

// formatFields writes a struct as JSON. Zero fields are left out, but for the
// round, which is often the first. So is the value of a result, which is not part of
// the JSON of its event, and the time of an event of a round, which the line begins with.
func formatFields(v reflect.Value) string {
	var members []string
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() && name != "Round" || name == "Value" || name == "At" && v.FieldByName("Round").IsValid() {
			continue
		}
		members = append(members, fmt.Sprintf("%q:%s", name, formatValue(v.Field(i).Interface())))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func formatValue(v any) string {
	switch v := v.(type) {
	case time.Duration:
		return toJSON(v.Round(time.Millisecond).String())
	case []event.ClientCall:
		var calls []string
		for _, c := range v {
			calls = append(calls, formatFields(reflect.ValueOf(c)))
		}
		return "[" + strings.Join(calls, ",") + "]"
	case *event.Failure:
		return formatFields(reflect.ValueOf(*v))
	case *model.Error:
		return toJSON(map[string]any{"class": v.Class, "status": v.Status, "message": v.Message})
	}
	return toJSON(v)
}

// toJSON writes v on one line, with <, > and & as they are.
func toJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err.Error()
	}
	return strings.TrimSuffix(b.String(), "\n")
}
