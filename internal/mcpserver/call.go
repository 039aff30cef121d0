package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/spend"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

const permissionDeny = policy.Deny

// callRate is how often a key may call one tool: 25 times a second, bursts of 50.
func callRate() org.Rate { return org.Rate{PerMinute: 25 * 60, Burst: 50} }

// call answers tools/call.
func (h *Handler) call(ctx context.Context, one *request, params *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
	ctx, done, err := h.begin(ctx, one)
	if err != nil {
		return nil, err
	}
	defer done()
	policy := h.policy(one.caller)
	if n := policy.Limits.ActiveMS; n > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(n)*time.Millisecond)
		defer cancel()
	}
	set, err := h.tools(ctx, one.caller, policy)
	if err != nil {
		return nil, err
	}
	if one.session != nil && one.session.differs(digest(set)) {
		one.session.notify()
	}
	arguments := string(params.Arguments)
	if arguments == "null" { // as if the member were absent
		arguments = ""
	}
	p := toolexec.Prepare(set, toolexec.Rules{Validation: policy.Validation, NoUnpriced: policy.NoUnpriced, Asks: policy.Asks}, "0.0", params.Name, arguments)
	if p.Owner == tool.Unknown {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(
			"unknown tool %q: it does not exist, or it is not within the scope of this key", params.Name)}
	}
	if policy.HooksTool(params.Name, p.Tool) {
		return refusal{Kind: hooksRequired, Message: fmt.Sprintf("tool %q has hooks in this org, and only runs have them; it was not executed. "+
			"Let a run call it: send the task to POST /v1/responses or POST /v1/chat/completions with a key of the org", params.Name)}.result(), nil
	}
	if policy.Permission == permissionDeny {
		return refusal{Kind: approvalRequired, Message: fmt.Sprintf("tool %q was not executed: agent_permission of the org is deny; an owner or admin changes it", params.Name)}.result(), nil
	}
	if refused := h.rate(ctx, one.caller, params.Name); refused != nil {
		return refused.result(), nil
	}
	hold, refused := h.reserve(ctx, one.caller, policy, p.PriceNano)
	if refused != nil {
		return refused.result(), nil
	}
	defer hold.Settle(budget.Amount{}) // unless it was executed
	c := h.callOf(one, p)
	switch p.Verdict {
	case loop.Answer:
		return refusal{Kind: invalidArguments, Message: p.Answer}.result(), nil
	case loop.Ask:
		c.row.Status = string(loop.Denied)
		h.record(ctx, c)
		remedy := "Let a run call it: send the task to POST /v1/responses or POST /v1/chat/completions with a key of the org, and decide with " +
			"\"turnpike approvals\" or POST /v1/approvals. Or an owner or admin changes require_approval of its server"
		if p.Entry.Program { // no run of the gateway has it
			remedy = "It is a function of the program that serves /mcp: only an agent of that program can wait for the approval"
		}
		return refusal{Kind: approvalRequired, Message: fmt.Sprintf("tool %q needs the approval of a person, which a call over /mcp cannot wait for; "+
			"it was not executed. %s", params.Name, remedy)}.result(), nil
	}
	return h.execute(ctx, c, p, policy, hold)
}

// begin counts a call that begins, and returns its context, which ends when the client leaves, the
// session ends, or the gateway stops.
func (h *Handler) begin(ctx context.Context, one *request) (context.Context, func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the gateway is stopping; try again later"}
	}
	h.calls.Add(1)
	ctx, left := until(ctx, one.ctx)
	life := h.life
	if one.session != nil {
		life = one.session.life
	}
	ctx, ended := until(ctx, life)
	return ctx, func() { ended(); left(); h.calls.Done() }, nil
}

// rate takes the call from the rate limit of the key for the tool.
func (h *Handler) rate(ctx context.Context, caller caller.Caller, name string) *refusal {
	v := h.rates.Take(ctx, ratelimit.Request{Org: caller.Org.ID, Key: caller.Principal.ID + "\x00" + name, KeyRate: callRate()})
	if v.Allowed {
		return nil
	}
	wait := (v.RetryAfter + time.Millisecond - 1) / time.Millisecond
	return &refusal{Kind: rateLimited, Message: fmt.Sprintf("the key calls the tool %q too often: the limit is %d calls a second, bursts of %d; try again in %d ms",
		name, callRate().PerMinute/60, callRate().Burst, wait), RetryAfterMS: int64(wait)}
}

// reserve reserves the price of a call in the budgets of the org and of the key. It refuses the call if
// one has no room, or nothing left, or if that is not known. The caller must settle the hold.
func (h *Handler) reserve(ctx context.Context, caller caller.Caller, policy loop.Policy, price money.Nano) (*spend.Reservation, *refusal) {
	if !policy.Limits.Affords(0, price) {
		return nil, &refusal{Kind: quotaExceeded, Message: "the price of the call is more than the org's max_run_cost_usd; the call was not executed"}
	}
	var windows []budget.Window
	for _, b := range policy.Budgets {
		windows = append(windows, journal.WindowAt(b, h.o.Now().UnixMilli()))
	}
	hold, err := h.o.Spend.Reserve(ctx, caller.Org.ID, windows, budget.Amount{Tokens: 1, NanoUSD: max(1, int64(price))})
	if err == nil {
		return hold, nil
	}
	if over, ok := errors.AsType[*journal.OverBudget](err); ok {
		return nil, &refusal{Kind: quotaExceeded, Message: fmt.Sprintf("the budget %s is used up, or has no room for the price of the call; the call was not executed", over.Budget.Scope)}
	}
	h.o.Log.Warn("mcp_quota: a call was refused because the budgets could not be read", "org", caller.Org.ID, "error", err)
	return nil, &refusal{Kind: quotaExceeded, Message: "the budgets cannot be read at the moment; the call was not executed; try again later"}
}

// call is a call that may be executed.
type call struct {
	caller caller.Caller
	row    audit.MCPCall
}

func (h *Handler) callOf(one *request, p toolexec.Prepared) call {
	c := call{one.caller, audit.MCPCall{Server: p.Server, Tool: p.Tool, Class: string(p.Class), ArgsDigest: p.ArgsDigest}}
	if one.session != nil {
		c.row.Session = one.session.id
	}
	return c
}

// entry returns the audit entry of the call as it is now.
func (h *Handler) entry(c call) audit.Entry {
	return audit.Entry{
		Kind: audit.KindMCPCall, At: h.o.Now().UnixMilli(), Principal: c.caller.Principal.ID, RequestID: c.caller.RequestID, Body: c.row,
	}
}

// record stores the audit entry of a call a little later, also if the client has left.
func (h *Handler) record(ctx context.Context, c call) {
	e := h.entry(c)
	if err := h.o.Audit.Record(context.WithoutCancel(ctx), c.caller.Org.ID, e); err != nil {
		h.o.Log.Error("an audit row of a tool call over /mcp may be missing", "org", c.caller.Org.ID, "error", err)
	}
	if h.o.Recorded != nil {
		h.o.Recorded(c.caller.Org.ID, e)
	}
}

// execute executes the call. A call that may write is recorded before.
func (h *Handler) execute(ctx context.Context, c call, p toolexec.Prepared, policy loop.Policy, hold *spend.Reservation) (*mcp.CallToolResult, error) {
	key := ""
	if p.Class != tool.Read {
		key = idempotencyKey(c.caller.Org.ID, p)
		c.row.Status = audit.Started
		if err := h.o.Audit.RecordNow(ctx, c.caller.Org.ID, h.entry(c)); err != nil {
			h.o.Log.Error("a tool call over /mcp was not executed: it could not be recorded", "org", c.caller.Org.ID, "tool", p.Tool, "error", err)
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the audit log cannot be written at the moment; the call was not executed"}
		}
	}
	memory := c.caller.Account.Share()
	defer memory.Close()
	began := time.Now()
	done, err := toolexec.Execute(ctx, p.Entry, tool.Call{
		Key: string(p.Key), Attempt: 1, Class: p.Class, Arguments: p.Arguments, IdempotencyKey: key, Memory: memory,
		Caller: tool.Caller{ID: c.caller.Principal.ID, Org: c.caller.Org.ID, Permissions: []string{p.Entry.Name}}, RequestID: c.caller.RequestID,
	}, toolexec.Cap{Bytes: policy.ResultMaxBytes})
	c.row.Status, c.row.Digest = string(done.Outcome), done.Digest
	c.row.LatencyMS = audit.Milliseconds(max(time.Since(began), time.Microsecond).Microseconds())
	if done.Outcome != loop.NotRun {
		c.row.CostNanoUSD = int64(p.PriceNano)
		hold.Settle(budget.Amount{NanoUSD: c.row.CostNanoUSD})
	}
	h.record(ctx, c)
	if fatal := (tool.Blocked)(nil); err != nil && !errors.As(err, &fatal) && ctx.Err() != nil {
		h.o.Log.Debug("tool call over /mcp ended early", "tool", p.Tool, "cause", context.Cause(ctx))
	}
	return wireResult(done), nil
}

// idempotencyKey returns the key of a call: one of its own, or one that all calls of the org have whose
// effect has the same name.
func idempotencyKey(orgID string, p toolexec.Prepared) string {
	if k, ok := p.Entry.Tool.(tool.Keyer); ok {
		if effect := k.EffectKey(p.Arguments); effect != "" {
			sum := sha256.Sum256([]byte(orgID + "\x00" + p.Tool + "\x00" + effect))
			return "turnpike:effect_" + hex.EncodeToString(sum[:16])
		}
	}
	return id.New("turnpike:mcp_")
}

// wireResult returns the result of an executed call as clients get it.
func wireResult(d toolexec.Done) *mcp.CallToolResult {
	out := &mcp.CallToolResult{Content: []mcp.Content{}, IsError: d.Outcome != loop.OK}
	if json.Valid(d.Structured) && d.Structured[0] == '{' {
		out.StructuredContent = d.Structured
	}
	for _, p := range d.Parts {
		out.Content = append(out.Content, wirePart(p))
	}
	return out
}

func wirePart(p item.Part) mcp.Content {
	data, err := base64.StdEncoding.DecodeString(p.Data)
	switch {
	case err != nil || p.Kind == item.Text:
	case p.Kind == item.Image && len(data) > 0:
		return &mcp.ImageContent{Data: data, MIMEType: p.MIMEType}
	case p.Kind == item.Audio && len(data) > 0:
		return &mcp.AudioContent{Data: data, MIMEType: p.MIMEType}
	case len(data) > 0:
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: p.URL, MIMEType: p.MIMEType, Blob: data}}
	case p.Kind == item.Resource && p.Text != "":
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: p.URL, MIMEType: p.MIMEType, Text: p.Text}}
	case p.Kind == item.Resource && p.URL != "":
		return &mcp.ResourceLink{URI: p.URL, Name: p.Name, Title: p.Title, Description: p.Description, MIMEType: p.MIMEType}
	}
	return &mcp.TextContent{Text: item.PlainText([]item.Part{p})}
}
