package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
)

// teller tells a run's journal fact by fact, in lines that read like a story:
//
//	round 0    model    Let me look.                                 (40 ms, 31 + 9 tokens)
//	           0.0      get_weather({"city":"Lisbon"})
//	           0.0      ok: Lisbon: 24 degrees                       (2 ms)
type teller struct {
	lines
	story *run.Story

	accepted loop.Accepted
	begun    int64 // when the run was accepted
	asked    int64 // when the latest model call began
	provider string
	server   map[loop.CallKey]string
}

// items returns what a ref stands for; nil when unknown.
func (t *teller) items(ref string) []item.Item { return decodeItems(t.story.Rows[ref]) }

// tell prints what f says. Facts without a line of their own are silent.
func (t *teller) tell(f loop.Fact) {
	switch b := f.Body.(type) {
	case loop.Accepted:
		t.accepted, t.begun = b, f.At
		t.line("accepted", "", "%s for %s of %s: %s, %s, at most %d rounds, %d calls, %s", b.Model, b.Principal, b.Org, b.Surface, b.Grade,
			b.Limits.Rounds, b.Limits.Calls, time.Duration(b.Limits.ActiveMS)*time.Millisecond)
	case loop.InputAdded:
		t.input(b)
	case loop.Catalogued:
		t.catalogued(b, f.At)
	case loop.Blocked:
		t.blocked(b)
	case loop.TurnStarted:
		t.asked = f.At
		if b.Target < len(t.accepted.Targets) {
			t.provider = t.accepted.Targets[b.Target].Provider
		}
		if b.Attempt > 1 {
			t.line(fmt.Sprintf("round %d", b.Round), "model", "attempt %d", b.Attempt)
		}
	case loop.TurnFailed:
		t.turnFailed(b, f.At)
		if said := saidIn(t.items(b.PartialRef)); said != "" {
			t.line("", "", "after: %s", t.short(said))
		}
	case loop.Turn:
		t.turn(b, f.At)
	case loop.CallPrepared:
		if t.server == nil {
			t.server = map[loop.CallKey]string{}
		}
		t.server[b.Key] = b.Server
		t.coerced(b)
	case loop.CallDone:
		t.callDone(b)
	case loop.CallWaiting:
		t.line("", string(b.Key), "waits for a human")
	case loop.CallResolved:
		t.line("", "", "%s decided: approved %v", b.By, b.Approved)
	case loop.CancelRequested:
		t.line("ended", "", "%s by %s", b.Cause, b.By)
	case loop.Resumed:
		t.line("taken over", "", "by %s", b.By)
	case loop.ReserveRefused:
		t.line("ended", "", "budget %s has no room for another model call (%d tokens)", b.Scope, b.Amount.Tokens)
	case loop.Expired:
		if b.WaitID != "" {
			t.line("", "", "nobody decided %s in time: the call counts as denied", b.WaitID)
		} else {
			t.line("ended", "", "the time limit was reached")
		}
	case loop.Finished:
		t.line("finished", "", "%s   (%s after it was accepted)", b.Reason, time.Duration(f.At-t.begun)*time.Millisecond)
		if why := t.story.Detail().Why; why != "" {
			t.line("", "", "%s", t.short(why))
		}
	case loop.CallStarted, loop.Parked, loop.Reserved: // not printed
	}
}

// blocked says which address was refused, whose it is, and what can be done.
func (t *teller) blocked(b loop.Blocked) {
	t.line("blocked", "", "the outbound policy refused %s (%s)", b.Address, b.Reason)
	if b.Server != "" {
		t.line("", "", "of the MCP server %s %s", b.Server, b.URL)
	}
	if ip, err := netip.ParseAddr(b.Address); err == nil && b.Setting != "" {
		t.line("", "", "to allow it, set %s: [%q] in the configuration", b.Setting, netip.PrefixFrom(ip, ip.BitLen()))
	} else if b.Setting != "" {
		t.line("", "", "to allow it, set %s in the configuration", b.Setting)
	}
}

// turnFailed says how a model call failed and what the provider answered.
func (t *teller) turnFailed(b loop.TurnFailed, at int64) {
	t.line("", "model", "attempt %d failed: %s%s   (%d ms)", b.Attempt, b.Class, statusOf(b.Status), at-t.asked)
	f := t.story.ModelFailure(t.provider, b)
	if f.Message != "" {
		t.line("", "", "%s", t.short(f.Message))
	}
	if f.Cause != "" {
		t.line("", "", "cause: %s", t.short(f.Cause))
	}
	if body := strings.ToValidUTF8(string(f.Body), "\uFFFD"); body != "" {
		t.line("", "", "answer: %s", t.short(body))
	}
}

// coerced says which arguments are not as the model wrote them.
func (t *teller) coerced(b loop.CallPrepared) {
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
	t.line("", string(b.Key), "arguments changed to fit the schema: %s", strings.Join(changes, ", "))
}

// lines prints the lines of a run.
type lines struct {
	out   io.Writer
	whole bool // texts in full
}

// line prints one line. With whole texts, what follows a line break is indented: it
// cannot be taken for a line of the story.
func (l lines) line(left, middle, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !l.whole {
		text = plain(text)
	}
	fmt.Fprintf(l.out, "%-10s %-8s %s\n", left, plain(middle), indented(text))
}

// indented puts what follows a line break below the texts of other lines.
func indented(text string) string {
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 20))
}

// counted says how many things there are.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func statusOf(status int) string {
	if status == 0 {
		return ""
	}
	return fmt.Sprintf(" (status %d)", status)
}

func (t *teller) input(b loop.InputAdded) {
	items := t.items(b.ItemsRef)
	if len(items) == 0 {
		return
	}
	last := items[len(items)-1]
	who := string(last.Role)
	if last.Kind == item.ToolResult {
		who = "tool"
	}
	t.line("input", who, "%s   (%s)", t.short(last.Text()), counted(len(items), "item"))
}

func (t *teller) catalogued(b loop.Catalogued, at int64) {
	for _, s := range b.Servers {
		if s.Error != "" {
			t.line("tools", s.Label, "not available: %s", s.Error)
			continue
		}
		t.line("tools", s.Label, "%s   (%d ms)", counted(s.Tools, "tool"), at-t.begun)
	}
	for _, c := range b.Collisions {
		t.line("tools", c.Server, "%s is left out: %s has a tool of that name", c.Tool, c.KeptFrom)
	}
}

func (t *teller) turn(b loop.Turn, at int64) {
	text := t.short(saidIn(t.items(b.ItemsRef)))
	t.line(fmt.Sprintf("round %d", b.Round), "model", "%s   (%d ms, %d + %d tokens)", text, at-t.asked, b.Usage.Input, b.Usage.Output)
	for i, c := range b.Calls {
		cut := ""
		if !c.Complete {
			cut = "   cut off"
		}
		t.line("", string(loop.Key(b.Round, i)), "%s(%s)%s", c.Name, t.short(c.Arguments), cut)
	}
}

func (t *teller) callDone(b loop.CallDone) {
	text := ""
	if items := t.items(b.ResultRef); len(items) == 1 {
		text = ": " + t.short(item.PlainText(items[0].Parts))
	}
	if b.Attempt == 0 {
		t.line("", string(b.Key), "not executed, %s%s", b.Outcome, text)
		return
	}
	t.line("", string(b.Key), "%s%s   (%s, %s ms)", b.Outcome, text, t.server[b.Key], strconv.FormatFloat(audit.Milliseconds(b.Took()), 'f', -1, 64))
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

// short makes one line of a text.
func (l lines) short(text string) string {
	if l.whole {
		return text
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 160
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// decodeItems reads a stored row that holds items.
func decodeItems(raw json.RawMessage) []item.Item {
	var items item.List
	if json.Unmarshal(raw, &items) != nil {
		return nil
	}
	return items
}
