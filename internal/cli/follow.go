package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

func followRun(p Process, from *readStore) *cobra.Command {
	var after string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "follow ID|UUID",
		Short: "Print what happens in a run, while it happens",
		Long: `Print what happens in a run, while it happens: the text of the model as it
arrives, tool calls and their results. It ends with the run. Interrupt it with
Ctrl-C, which does not change the run.

The pieces of text of a light run are stored when it ends. Follow a durable run
to see them as they arrive.

With --json, each event is one JSON object per line, with its position.`,
		Example: `  turnpike runs follow run_06gkq4tp7k0019kd0l5gbgo7f8
  turnpike runs follow run_06gkq4tp7k0019kd0l5gbgo7f8 --after 12.3 --json`,
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			f := run.Follow{RunID: audit.StoredRunID(args[0])}
			if cmd.Flags().Changed("after") {
				var err error
				if f.After, err = event.ParsePosition(after); err != nil {
					return fmt.Errorf("--after: %w", err)
				}
			}
			store, err := from.open(cmd.Context(), p)
			if err != nil {
				return err
			}
			defer store.Close()
			f.Org, err = from.orgWith(cmd.Context(), p, store, "run "+args[0], func(orgID string) error {
				_, err := store.Head(cmd.Context(), orgID, f.RunID)
				return err
			})
			if err != nil {
				return err
			}
			sink := run.Sink(&listener{lines: lines{out: cmd.OutOrStdout()}})
			if asJSON {
				sink = jsonEvents{cmd.OutOrStdout()}
			}
			err = run.FollowStored(cmd.Context(), store, f, sink)
			if l, ok := sink.(*listener); ok {
				l.endLine()
			}
			if cmd.Context().Err() != nil { // interrupted
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&after, "after", "", "only events after the one at this `POSITION`, such as 12.3")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per event")
	return cmd
}

// jsonEvents prints events as lines of JSON.
type jsonEvents struct{ out io.Writer }

// Emit implements run.Sink.
func (s jsonEvents) Emit(at event.Position, e event.Event) error {
	data, err := event.Encode(e)
	if err != nil {
		return err
	}
	return printJSON(s.out, json.RawMessage(fmt.Sprintf(`{"position":%q,%s`, at.String(), data[1:])))
}

// listener prints the events of a run, in the lines of a [teller]. Text is printed as it
// arrives.
type listener struct {
	lines
	open    bool            // the last line has no line end yet
	begun   bool            // something was printed of the present round
	started map[string]bool // keys of the calls that were started
}

// Emit implements run.Sink.
func (l *listener) Emit(_ event.Position, e event.Event) error {
	switch e := e.(type) {
	case event.TextDelta:
		return l.text(e.Round, e.Text)
	case event.RefusalDelta:
		return l.text(e.Round, e.Text)
	case event.RoundStarted:
		l.endLine()
		l.begun = false
		if e.Attempt > 1 {
			l.line(round(e.Round), "model", "attempt %d", e.Attempt)
		}
	case event.RoundDone:
		tokens := fmt.Sprintf("   (%d + %d tokens)", e.Usage.Input, e.Usage.Output)
		if l.open {
			fmt.Fprint(l.out, tokens)
		} else if !l.begun {
			l.line(round(e.Round), "model", "%s", tokens)
		}
		l.endLine()
	case event.Started:
		l.line("started", "", "%s   %s at %s UTC", e.RunID, e.Model, e.At.UTC().Format("15:04:05"))
	case event.ToolsListed:
		for _, server := range e.Servers {
			if server.Error != "" {
				l.line("listed", server.Server, "%s", l.short(server.Error))
				continue
			}
			l.line("listed", server.Server, "%d tools", len(server.Tools))
		}
	case event.ToolStarted:
		if l.started == nil {
			l.started = map[string]bool{}
		}
		l.started[e.Key] = true
		l.line("", e.Key, "%s(%s)", e.Name, l.short(string(e.Arguments)))
	case event.ToolDone:
		l.done(e)
	case event.Waiting:
		l.line("waiting", "", "for a human")
		for _, a := range e.Approvals {
			l.line("", a.Key, "%s asks for %s", a.ID, a.Name)
		}
	case event.ApprovalDecided:
		l.decided(e)
	case event.Finished:
		l.finished(e)
	case event.CallDelta, event.Citation, event.ItemDone, event.NativeItem, event.NativeProgress,
		event.ReasoningDelta, event.RelayBody, event.RelayHead: // not printed
	}
	return nil
}

// line ends the line of text, and prints another line.
func (l *listener) line(left, middle, format string, args ...any) {
	l.endLine()
	l.lines.line(left, middle, format, args...)
}

// text prints a piece of text, in the line of its round.
func (l *listener) text(n int, text string) error {
	if text == "" {
		return nil
	}
	left := ""
	if !l.open {
		name, who := "", ""
		if !l.begun {
			name, who = round(n), "model"
		}
		left = fmt.Sprintf("%-10s %-8s ", name, who)
	}
	l.open, l.begun = true, true
	_, err := fmt.Fprint(l.out, left+indented(visibleText(text)))
	return err
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

func (l *listener) endLine() {
	if l.open {
		fmt.Fprintln(l.out)
	}
	l.open = false
}

func (l *listener) done(e event.ToolDone) {
	switch {
	case e.Duration > 0 && e.Server != "":
		l.line("", e.Key, "%s: %s   (%s, %s)", e.Outcome, l.short(e.Text), e.Server, e.Duration)
	case e.Duration > 0 || l.started[e.Key]:
		l.line("", e.Key, "%s: %s", e.Outcome, l.short(e.Text))
	default:
		l.line("", e.Key, "%s: not executed, %s: %s", e.Name, e.Outcome, l.short(e.Text))
	}
	delete(l.started, e.Key)
}

func (l *listener) decided(e event.ApprovalDecided) {
	by, reason := "", ""
	if e.By != "" {
		by = " by " + e.By
	}
	if e.Reason != "" {
		reason = ": " + l.short(e.Reason)
	}
	l.line("", e.Key, "%s is %s%s%s", e.ID, e.Decision, by, reason)
}

func (l *listener) finished(e event.Finished) {
	l.line("finished", "", "%s", e.Reason)
	if e.Failure != nil {
		l.line("", "", "%s", l.short(e.Failure.Message))
	}
	for _, c := range e.Calls {
		l.line("", "client", "%s(%s)", c.Name, l.short(c.Arguments))
	}
	fmt.Fprintf(l.out, "\n%s, %s, %s\n", counted(e.Rounds, "round"), counted(e.ToolCalls, "tool call"), counted(int(e.Usage.Input+e.Usage.Output), "token"))
}

func round(n int) string { return fmt.Sprintf("round %d", n) }
