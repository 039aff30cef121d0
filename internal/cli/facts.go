package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// factPrinter prints the facts of a run's journal, and what only a journal has: failed
// attempts, changed arguments, addresses that were refused.
type factPrinter struct {
	printer
	story *journal.Story

	accepted loop.Accepted
	begun    int64 // when the run was accepted
	asked    int64 // when the latest model call began
	provider string
	server   map[loop.CallKey]string
	waiting  map[string]loop.CallKey // by the id of the approval
	pause    string                  // id of the latest pause
}

func newFactPrinter(out io.Writer, whole bool, story *journal.Story) *factPrinter {
	return &factPrinter{
		printer: printer{out: out, whole: whole}, story: story,
		server: map[loop.CallKey]string{}, waiting: map[string]loop.CallKey{},
	}
}

// items returns what a ref stands for; nil when unknown.
func (p *factPrinter) items(ref string) []item.Item { return decodeItems(p.story.Rows[ref]) }

// print prints what f says. Facts without a line of their own are silent.
func (p *factPrinter) print(f loop.Fact) {
	switch b := f.Body.(type) {
	case loop.Accepted:
		p.accepted, p.begun = b, f.At
		p.line("accepted", "", "model %s, key %s, org %s; %s, %s; at most %d rounds, %d calls, %s", b.Model, b.Principal, b.Org, b.Surface, b.Grade,
			b.Limits.Rounds, b.Limits.Calls, time.Duration(b.Limits.ActiveMS)*time.Millisecond)
	case loop.InputAdded:
		p.input(b)
	case loop.HookRan:
		p.hookRan(b)
	case loop.Compacted:
		p.compacted(b)
	case loop.LimitsRaised:
		p.limitsRaised(b)
	case loop.Catalogued:
		p.catalogued(b, f.At)
	case loop.Blocked:
		p.blocked(b)
	case loop.Routed:
		if b.Attempt > 0 && len(b.Order) > 0 && b.Order[0] >= 0 && b.Order[0] < len(p.accepted.Targets) {
			t := p.accepted.Targets[b.Order[0]]
			p.fallback(t.Provider + "/" + t.Model)
		}
	case loop.TurnStarted:
		p.asked = f.At
		if b.Target < len(p.accepted.Targets) {
			p.provider = p.accepted.Targets[b.Target].Provider
		}
		p.attempt(b.Round, b.Attempt)
	case loop.TurnFailed:
		p.turnFailed(b, f.At)
		if said := saidIn(p.items(b.PartialRef)); said != "" {
			p.line("", "", "after: %s", p.short(said))
		}
	case loop.Turn:
		p.turn(b, f.At)
	case loop.CallPrepared:
		p.server[b.Key] = b.Server
		p.coerced(b)
	case loop.CallDone:
		p.callDone(b)
	case loop.CallWaiting:
		p.waiting[b.WaitID] = b.Key
		if b.On == loop.OnChild {
			p.line("", string(b.Key), "waits for the run that it has started: %s", b.WaitID)
		} else {
			p.waits(string(b.Key), b.WaitID)
		}
	case loop.CallResolved:
		decision := "denied"
		if b.Approved {
			decision = "approved"
		}
		if b.WaitID == "" {
			p.line("decided", "", "%s by %s, for the next call that is asked for", decision, b.By)
			return
		}
		p.decided(string(p.waiting[b.WaitID]), b.WaitID, decision, b.By, b.Message)
	case loop.CancelRequested:
		p.line("ended", "", "%s by %s", b.Cause, b.By)
	case loop.Resumed:
		p.line("goes on", "", "with %s", b.By)
	case loop.ReserveRefused:
		p.line("ended", "", "budget %s has no room for another model call (%d tokens)", b.Scope, b.Amount.Tokens)
	case loop.Paused:
		p.pausedAt(b)
	case loop.Expired:
		switch {
		case b.WaitID == "":
			p.line("ended", "", "the time limit was reached")
		case b.WaitID == p.pause:
			p.line("ended", "", "nobody has raised the limit in time")
		default:
			p.decided(string(p.waiting[b.WaitID]), b.WaitID, "expired", "", "")
		}
	case loop.Finished:
		after := time.Duration(f.At-p.begun) * time.Millisecond
		p.finished(string(b.Reason), fmt.Sprintf("   (%s after it was accepted)", after), eventlog.DetailOf(p.story).Why)
	case loop.CallStarted, loop.Parked, loop.Reserved: // not printed
	}
}

// blocked says which address was refused, whose it is, and what can be done.
func (p *factPrinter) blocked(b loop.Blocked) {
	p.line("blocked", "", "the outbound policy refused %s (%s)", b.Address, b.Reason)
	if b.Server != "" {
		p.line("", "", "of the MCP server %s %s", b.Server, b.URL)
	}
	if ip, err := netip.ParseAddr(b.Address); err == nil && b.Setting != "" {
		p.line("", "", "to allow it, set %s: [%q] in the configuration", b.Setting, netip.PrefixFrom(ip, ip.BitLen()))
	} else if b.Setting != "" {
		p.line("", "", "to allow it, set %s in the configuration", b.Setting)
	}
}

// turnFailed says how a model call failed and what the provider answered.
func (p *factPrinter) turnFailed(b loop.TurnFailed, at int64) {
	p.line("", "model", "attempt %d failed: %s%s   (%d ms)", b.Attempt, b.Class, statusOf(b.Status), at-p.asked)
	f := eventlog.ModelFailureOf(p.story, p.provider, b)
	if f.Message != "" {
		p.line("", "", "%s", p.short(f.Message))
	}
	if f.Cause != "" {
		p.line("", "", "cause: %s", p.short(f.Cause))
	}
	if body := strings.ToValidUTF8(string(f.Body), "\uFFFD"); body != "" {
		p.line("", "", "answer: %s", p.short(body))
	}
}

// coerced says which arguments are not as the model wrote them.
func (p *factPrinter) coerced(b loop.CallPrepared) {
	const most = 10
	if len(b.Coerced) == 0 {
		return
	}
	var changes []string
	for _, c := range b.Coerced[:min(len(b.Coerced), most)] {
		changes = append(changes, fmt.Sprintf("%s from %s to %s", c.Path, c.From, c.To))
	}
	if more := len(b.Coerced) - most; more > 0 {
		changes = append(changes, fmt.Sprintf("and %d more", more))
	}
	p.line("", string(b.Key), "arguments changed to fit the schema: %s", strings.Join(changes, ", "))
}

func statusOf(status int) string {
	if status == 0 {
		return ""
	}
	return fmt.Sprintf(" (status %d)", status)
}

func (p *factPrinter) input(b loop.InputAdded) {
	items := p.items(b.ItemsRef)
	if len(items) == 0 {
		return
	}
	last := items[len(items)-1]
	who := string(last.Role)
	if last.Kind == item.ToolResult {
		who = "tool"
	}
	from := ""
	if b.Who != "" {
		from = fmt.Sprintf(", from the %s %s", b.By, b.Who)
	}
	p.line("input", who, "%s   (%s%s)", p.short(last.Text()), counted(len(items), "item"), from)
}

func (p *factPrinter) hookRan(b loop.HookRan) {
	failed := ""
	switch {
	case b.TimedOut:
		failed = ", because it did not answer in time"
	case b.Failed:
		failed = ", because it has failed"
	}
	p.line("", string(b.Key), "hook %s at %s: %s%s", b.Hook, b.Point, b.Verdict, failed)
}

func (p *factPrinter) compacted(b loop.Compacted) {
	cost := usage(b.Usage.Input, b.Usage.Output, -1)
	if b.Failed {
		p.line("compacted", "", "not: the attempt has failed%s", cost)
		return
	}
	if len(b.Refs) == 0 {
		p.line("compacted", "", "not: nothing of the prompt of %d tokens could be left out%s", b.Before, cost)
		return
	}
	how := "old results of tools are left out"
	if b.Summarized {
		how = "the older part is a summary"
	}
	p.line("compacted", "", "the prompt from %d to %d tokens: %s%s", b.Before, b.After, how, cost)
}

// pausedAt says at which limit the run waits, or why it may not.
func (p *factPrinter) pausedAt(b loop.Paused) {
	p.pause = b.WaitID
	limit := string(b.Reason)
	if b.Scope != "" {
		limit = "budget " + b.Scope
	}
	if b.Refused != "" {
		p.line("not paused", "", "at its limit (%s): %s", limit, b.Refused)
		return
	}
	until := ""
	if b.ExpiresAt > 0 {
		until = " until " + time.UnixMilli(b.ExpiresAt).UTC().Format(time.DateTime) + " UTC"
	}
	p.line("paused", "", "at its limit (%s)%s", limit, until)
}

func (p *factPrinter) limitsRaised(b loop.LimitsRaised) {
	var by []string
	add := func(n int64, what string) {
		if n > 0 {
			by = append(by, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(int64(b.Raise.Rounds), "rounds")
	add(int64(b.Raise.Calls), "calls")
	add(b.Raise.Tokens, "tokens")
	add(b.Raise.NanoUSD, "nano-USD")
	add(b.Raise.ActiveMS, "ms")
	if len(by) == 0 {
		p.line("limits", "", "%s lets the run try again", b.By)
		return
	}
	p.line("limits", "", "raised by %s: %s more", b.By, strings.Join(by, ", "))
}

func (p *factPrinter) catalogued(b loop.Catalogued, at int64) {
	for _, s := range b.Servers {
		p.listed(s.Label, s.Tools, s.Error, fmt.Sprintf("   (%d ms)", at-p.begun))
	}
	for _, c := range b.Collisions {
		p.line("tools", c.Server, "%s is left out: %s has a tool of that name", c.Tool, c.KeptFrom)
	}
}

func (p *factPrinter) turn(b loop.Turn, at int64) {
	cost := usage(b.Usage.Input, b.Usage.Output, time.Duration(at-p.asked)*time.Millisecond)
	p.line(roundName(b.Round), "model", "%s%s", p.short(saidIn(p.items(b.ItemsRef))), cost)
	for i, c := range b.Calls {
		note := ""
		if !c.Complete {
			note = "   cut off"
		}
		p.call(string(loop.Key(b.Round, i)), c.Name, c.Arguments, note)
	}
}

func (p *factPrinter) callDone(b loop.CallDone) {
	text := ""
	if items := p.items(b.ResultRef); len(items) == 1 {
		text = item.PlainText(items[0].Parts)
	}
	p.result(result{
		key: string(b.Key), outcome: string(b.Outcome), text: text, executed: b.Attempt != 0,
		server: p.server[b.Key], took: time.Duration(b.Micros) * time.Microsecond,
	})
}

// saidIn returns the text of the messages.
func saidIn(items []item.Item) string {
	said := ""
	for _, it := range items {
		if it.Kind == item.Message {
			said += it.Text()
		}
	}
	return said
}

// decodeItems reads a stored row that holds items.
func decodeItems(raw json.RawMessage) []item.Item {
	var items item.List
	if json.Unmarshal(raw, &items) != nil {
		return nil
	}
	return items
}
