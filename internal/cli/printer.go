package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/tool"
)

// printer prints a run, a line for each thing that happened. `runs show` prints the facts of
// a journal with it, by a [factPrinter], and `runs follow` the events of a run, by an
// [eventPrinter]: both print the same thing with the same line.
//
//	round 0    model    Let me look.                                 (40 ms, 31 + 9 tokens)
//	           0.0      get_weather({"city":"Lisbon"})
//	           0.0      ok: Lisbon: 24 degrees                       (weather, 2 ms)
type printer struct {
	out   io.Writer
	whole bool // texts in full
	open  bool // the last line has no line end yet
}

// line prints one line. With whole texts, what follows a line break is indented: it
// cannot be taken for another line.
func (p *printer) line(left, middle, format string, args ...any) {
	p.endLine()
	text := fmt.Sprintf(format, args...)
	if !p.whole {
		text = plain(text)
	}
	fmt.Fprintf(p.out, "%-10s %-8s %s\n", left, plain(middle), indented(text))
}

// endLine ends the line of a text that arrived in pieces.
func (p *printer) endLine() {
	if p.open {
		fmt.Fprintln(p.out)
	}
	p.open = false
}

// piece prints a piece of a text. The first piece of a line follows left and middle.
func (p *printer) piece(left, middle, text string) error {
	if text == "" {
		return nil
	}
	head := ""
	if !p.open {
		head = fmt.Sprintf("%-10s %-8s ", left, middle)
	}
	p.open = true
	_, err := fmt.Fprint(p.out, head+indented(visibleText(text)))
	return err
}

// attempt says that a model call is tried again.
func (p *printer) attempt(round, attempt int) {
	p.endLine()
	if attempt > 1 {
		p.line(roundName(round), "model", "attempt %d", attempt)
	}
}

// listed says how many tools a server has, or why it could not list them. Note is added.
func (p *printer) listed(server string, tools int, failure, note string) {
	if failure != "" {
		p.line("tools", server, "not available: %s", p.short(failure))
		return
	}
	p.line("tools", server, "%s%s", counted(tools, "tool"), note)
}

// call prints a tool call.
func (p *printer) call(key, name, arguments, note string) {
	p.line("", key, "%s(%s)%s", name, p.short(arguments), note)
}

// result is how a tool call ended.
type result struct {
	key, outcome, text string
	name               string // of a call that was not printed before; "" = it was
	executed           bool
	server             string        // "" = not known
	took               time.Duration // 0 = not known
}

// result prints how a tool call ended.
func (p *printer) result(r result) {
	text, name, where := "", "", ""
	if r.text != "" {
		text = ": " + p.short(r.text)
	}
	if r.name != "" {
		name = r.name + ": "
	}
	switch {
	case !r.executed:
		p.line("", r.key, "%snot executed, %s%s", name, r.outcome, text)
		return
	case r.server != "" && r.took > 0:
		where = fmt.Sprintf("   (%s, %s)", r.server, milliseconds(r.took))
	case r.server != "":
		where = fmt.Sprintf("   (%s)", r.server)
	}
	p.line("", r.key, "%s%s%s", r.outcome, text, where)
}

// waits says that a call waits for an approval.
func (p *printer) waits(key, approval string) {
	p.line("", key, "waits for a human: %s", approval)
}

// decided says what was decided about an approval, or that it expired. By and reason may be "".
func (p *printer) decided(key, approval, decision, by, reason string) {
	if by != "" {
		by = " by " + by
	}
	if reason != "" {
		reason = ": " + p.short(reason)
	}
	p.line("", key, "%s is %s%s%s", approval, decision, by, reason)
}

// fallback says which target is tried after another one has failed.
func (p *printer) fallback(to string) { p.line("fallback", "", "to %s", to) }

// finished says why the run ended.
func (p *printer) finished(reason, note, failure string) {
	p.line("finished", "", "%s%s", reason, note)
	if failure != "" {
		p.line("", "", "%s", p.short(failure))
	}
}

// totals prints the last line. Cost is in nano-USD,
// nil = nothing has a price.
func (p *printer) totals(rounds, calls int, tokens int64, cost tool.Money, note string) {
	if !cost.IsZero() {
		note = ", " + cost.String() + " USD" + note
	}
	fmt.Fprintf(p.out, "\n%s, %s, %s%s\n", counted(rounds, "round"), counted(calls, "tool call"), counted(int(tokens), "token"), note)
}

// short makes one line of a text.
func (p *printer) short(text string) string {
	if p.whole {
		return text
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 160
	if r := []rune(text); len(r) > most {
		return string(r[:most]) + "…"
	}
	return text
}

// indented puts what follows a line break below the texts of other lines.
func indented(text string) string {
	return strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", 20))
}

// visibleText keeps line breaks, and replaces everything else that would command a
// terminal.
func visibleText(text string) string {
	parts := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, part := range parts {
		parts[i] = plain(strings.ReplaceAll(part, "\t", "    "))
	}
	return strings.Join(parts, "\n")
}

// counted says how many things there are.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// usage says what a model call cost. Took is negative if it is not known; 0 is less than a millisecond.
func usage(input, output int64, took time.Duration) string {
	if took < 0 {
		return fmt.Sprintf("   (%d + %d tokens)", input, output)
	}
	return fmt.Sprintf("   (%s, %d + %d tokens)", milliseconds(took), input, output)
}

// milliseconds prints a duration as in the audit log.
func milliseconds(d time.Duration) string {
	return strconv.FormatFloat(audit.Milliseconds(d.Microseconds()), 'f', -1, 64) + " ms"
}

func roundName(n int) string { return fmt.Sprintf("round %d", n) }
