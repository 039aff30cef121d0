package telemetry

import (
	"context"
	"errors"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/model"
)

// Attributes beside those of the semantic conventions. The names are those of the
// audit log.
const (
	keyRun       = attribute.Key("agent_run_id")
	keyRound     = attribute.Key("round_index")
	keyCall      = attribute.Key("tool_call_index")
	keyOrg       = attribute.Key("org")
	keySurface   = attribute.Key("surface")
	keyGrade     = attribute.Key("grade")
	keyRelay     = attribute.Key("relay_reason")
	keyPrincipal = attribute.Key("principal")
	keyProvider  = attribute.Key("provider") // the name in the configuration
	keyServer    = attribute.Key("server_id")
	keyAttempt   = attribute.Key("attempt")
	keyOutcome   = attribute.Key("outcome")
	keyReason    = attribute.Key("finish_reason")
	keyRounds    = attribute.Key("rounds")
	keyCalls     = attribute.Key("tool_calls")
	keyApproval  = attribute.Key("approval_id")
	keyWaited    = attribute.Key("approval_waited_ms")
	keyTakenOver = attribute.Key("taken_over")
)

// commonKey is the context key of the attributes that all spans of a run have.
type commonKey struct{}

// commonAttributes returns the attributes that all spans of a run have, and more.
func commonAttributes(ctx context.Context, more ...attribute.KeyValue) trace.SpanStartEventOption {
	all, _ := ctx.Value(commonKey{}).([]attribute.KeyValue)
	return trace.WithAttributes(append(all[:len(all):len(all)], more...)...)
}

// Run implements [run.Observer].
func (t *Telemetry) Run(ctx context.Context, b run.Begun) (context.Context, func(run.End)) {
	counted := t.metrics.startRun(b)
	if t.tracer == nil {
		return ctx, counted
	}
	all := []attribute.KeyValue{keyRun.String(id.UUID(b.RunID)), keyOrg.String(b.Org), keySurface.String(b.Surface)}
	operation := semconv.GenAIOperationNameInvokeAgent
	if b.Grade == loop.Relay {
		operation = semconv.GenAIOperationNameChat
	}
	ctx = context.WithValue(ctx, commonKey{}, all)
	ctx, span := t.tracer.Start(ctx, "routing_execute", trace.WithSpanKind(trace.SpanKindServer), commonAttributes(ctx,
		operation, semconv.GenAIRequestModel(truncateName(b.Model)), keyGrade.String(string(b.Grade)), keyPrincipal.String(b.Principal)))
	if b.Target.Provider != "" {
		span.SetAttributes(t.providerAttributes(b.Target.Provider)...)
	}
	if b.Relay != "" {
		span.SetAttributes(keyRelay.String(string(b.Relay)))
	}
	if b.TakenOver {
		span.SetAttributes(keyTakenOver.Bool(true))
	}
	return ctx, func(end run.End) {
		counted(end)
		endRun(span, b, end)
	}
}

func endRun(span trace.Span, b run.Begun, end run.End) {
	span.SetAttributes(keyReason.String(string(end.Reason)))
	if b.Grade == loop.Relay {
		if end.Status != 0 {
			span.SetAttributes(semconv.HTTPResponseStatusCode(end.Status))
		}
		if end.ToFirst > 0 {
			span.SetAttributes(semconv.GenAIResponseTimeToFirstChunk(end.ToFirst.Seconds()))
		}
		if end.Usage != (model.Usage{}) { // of a translated relay; others are not decoded
			span.SetAttributes(usageAttributes(end.Usage)...)
		}
	} else {
		span.SetAttributes(keyRounds.Int(end.Rounds), keyCalls.Int(end.Calls))
		span.SetAttributes(usageAttributes(end.Usage)...)
	}
	switch {
	case end.Reason == "":
		setError(span, "handed_over")
	case end.Reason.Failed():
		setError(span, string(end.Reason))
	case end.Status >= 400:
		setError(span, strconv.Itoa(end.Status))
	}
	span.End()
}

// Round implements [run.Observer].
func (t *Telemetry) Round(ctx context.Context, n int) (context.Context, func()) {
	if t.tracer == nil {
		return ctx, func() {}
	}
	ctx, span := t.tracer.Start(ctx, "agent_round_"+strconv.Itoa(n), commonAttributes(ctx, keyRound.Int(n)))
	return ctx, func() { span.End() }
}

// ModelCall implements [run.Observer].
func (t *Telemetry) ModelCall(ctx context.Context, c run.ModelCall) (context.Context, func(run.ModelEnd)) {
	if t.tracer == nil {
		return ctx, func(end run.ModelEnd) { t.countFailure(ctx, c.Provider, end.Err) }
	}
	name := "chat " + c.Request.Model
	if c.Summary {
		name = "compact " + c.Request.Model
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), commonAttributes(ctx,
		semconv.GenAIOperationNameChat, semconv.GenAIRequestModel(c.Request.Model), keyRound.Int(c.Round), keyAttempt.Int(c.Attempt)))
	span.SetAttributes(t.providerAttributes(c.Provider)...)
	if c.Request.MaxTokens > 0 {
		span.SetAttributes(semconv.GenAIRequestMaxTokens(c.Request.MaxTokens))
	}
	if t.o.Content && span.IsRecording() {
		span.SetAttributes(semconv.GenAIInputMessagesKey.String(inputMessages(c.Request.Items)))
	}
	return ctx, func(end run.ModelEnd) {
		if end.Turn != nil {
			span.SetAttributes(responseAttributes(end.Turn)...)
		}
		if t.o.Content && end.Turn != nil && span.IsRecording() {
			span.SetAttributes(semconv.GenAIOutputMessagesKey.String(outputMessages(end.Turn)))
		}
		if end.ToFirst > 0 {
			span.SetAttributes(semconv.GenAIResponseTimeToFirstChunk(end.ToFirst.Seconds()))
		}
		if end.Err != nil {
			setModelError(span, end.Err)
		}
		span.End()
		t.countFailure(ctx, c.Provider, end.Err)
	}
}

// Compacted implements [run.Observer].
func (t *Telemetry) Compacted(c loop.Compacted) {
	if t.metrics != nil {
		t.metrics.compacted(c)
	}
}

// countFailure counts a failed attempt, unless the run has ended it.
func (t *Telemetry) countFailure(ctx context.Context, provider string, err error) {
	if t.metrics != nil && err != nil && ctx.Err() == nil {
		class, status := classOf(err)
		t.metrics.failed(provider, status, class)
	}
}

// classOf returns the class of a failed model call, and the provider's HTTP status;
// 0 = there is none.
func classOf(err error) (class string, status int) {
	var failure *model.Error
	if errors.As(err, &failure) {
		return string(failure.Class), failure.Status
	}
	return string(model.Transient), 0
}

// setModelError sets the class of a failed model call. It leaves out the provider's
// message, which may quote the prompt.
func setModelError(span trace.Span, err error) {
	class, status := classOf(err)
	if status != 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	}
	setError(span, class)
}

// providerAttributes returns the attributes of a provider: its kind, in the terms of the
// semantic conventions, and its name in the configuration.
func (t *Telemetry) providerAttributes(name string) []attribute.KeyValue {
	configured := t.o.Kind(name)
	kind := semconv.GenAIProviderNameKey.String(configured)
	switch configured {
	case "openai", "openai-responses":
		kind = semconv.GenAIProviderNameOpenAI
	case "anthropic":
		kind = semconv.GenAIProviderNameAnthropic
	case "gemini":
		kind = semconv.GenAIProviderNameGCPGemini
	case "bedrock":
		kind = semconv.GenAIProviderNameAWSBedrock
	case "":
		kind = semconv.GenAIProviderNameKey.String(name)
	}
	return []attribute.KeyValue{kind, keyProvider.String(name)}
}

func responseAttributes(turn *model.Turn) []attribute.KeyValue {
	all := usageAttributes(turn.Usage)
	if turn.Stop != model.StopUnknown {
		all = append(all, semconv.GenAIResponseFinishReasons(string(turn.Stop)))
	}
	if turn.ID != "" {
		all = append(all, semconv.GenAIResponseID(truncateName(turn.ID)))
	}
	if turn.Model != "" {
		all = append(all, semconv.GenAIResponseModel(truncateName(turn.Model)))
	}
	return all
}

// usageAttributes returns the token counts that the provider reported.
func usageAttributes(u model.Usage) []attribute.KeyValue {
	var all []attribute.KeyValue
	if u.Input+u.Output > 0 {
		all = append(all, semconv.GenAIUsageInputTokens(int(u.Input)), semconv.GenAIUsageOutputTokens(int(u.Output)))
	}
	if u.CachedInput > 0 {
		all = append(all, semconv.GenAIUsageCacheReadInputTokens(int(u.CachedInput)))
	}
	if u.CacheWrite > 0 {
		all = append(all, semconv.GenAIUsageCacheCreationInputTokens(int(u.CacheWrite)))
	}
	if u.Reasoning > 0 {
		all = append(all, semconv.GenAIUsageReasoningOutputTokens(int(u.Reasoning)))
	}
	return all
}

// ToolCall implements [run.Observer]. The span of the execution also has the
// attributes of the MCP request, as the semantic conventions recommend if one
// program knows both.
func (t *Telemetry) ToolCall(ctx context.Context, c run.ToolCall) (context.Context, func(run.ToolEnd)) {
	if t.tracer == nil {
		return ctx, func(run.ToolEnd) {}
	}
	name := truncateName(c.Name)
	ctx, span := t.tracer.Start(ctx, "execute_tool "+name, commonAttributes(ctx,
		semconv.GenAIOperationNameExecuteTool, semconv.GenAIToolName(name), semconv.GenAIToolCallID(truncateName(c.ID)), semconv.GenAIToolType("extension"),
		keyRound.Int(c.Round), keyCall.Int(c.Index), keyAttempt.Int(c.Attempt)))
	if c.Server != "" {
		span.SetAttributes(keyServer.String(c.Server))
		if c.Attempt > 0 {
			span.SetAttributes(semconv.McpMethodNameToolsCall)
		}
	}
	if c.Approval != "" {
		span.SetAttributes(keyApproval.String(c.Approval), keyWaited.Int64(c.Waited.Milliseconds()))
	}
	if t.o.Content && len(c.Arguments) > 0 && span.IsRecording() {
		span.SetAttributes(semconv.GenAIToolCallArgumentsKey.String(truncate(string(c.Arguments), maxText)))
	}
	return ctx, func(end run.ToolEnd) {
		span.SetAttributes(keyOutcome.String(string(end.Outcome)))
		if t.o.Content && end.Text != "" && span.IsRecording() {
			span.SetAttributes(semconv.GenAIToolCallResultKey.String(truncate(end.Text, maxText)))
		}
		switch {
		case end.Fatal:
			setError(span, "blocked")
		case end.Outcome == loop.Error:
			setError(span, "tool_error")
		case end.Outcome != loop.OK && end.Outcome != loop.Cached:
			setError(span, string(end.Outcome))
		}
		span.End()
	}
}

// CallSent adds the MCP session to the span of ctx. A call that is sent again may be sent
// in another session: the span has the latest one.
func (*Telemetry) CallSent(ctx context.Context, sessionID, protocol string, stdio bool) {
	span := trace.SpanFromContext(ctx)
	network := semconv.NetworkTransportTCP
	if stdio {
		network = semconv.NetworkTransportPipe
	}
	span.SetAttributes(network)
	if protocol != "" {
		span.SetAttributes(semconv.McpProtocolVersion(truncateName(protocol)))
	}
	if sessionID != "" {
		span.SetAttributes(semconv.McpSessionID(truncateName(sessionID)))
	}
}

// setError marks the span as failed. kind is the error type, from a small fixed set.
func setError(span trace.Span, kind string) {
	span.SetAttributes(semconv.ErrorTypeKey.String(kind))
	span.SetStatus(codes.Error, kind)
}
