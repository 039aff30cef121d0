package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
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
			f := eventlog.Follow{RunID: audit.StoredRunID(args[0])}
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
			sink := eventlog.Sink(newEventPrinter(cmd.OutOrStdout()))
			if asJSON {
				sink = jsonEvents{cmd.OutOrStdout()}
			}
			err = eventlog.FollowStored(cmd.Context(), store, f, sink)
			if l, ok := sink.(*eventPrinter); ok {
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

// Emit implements eventlog.Sink.
func (s jsonEvents) Emit(at event.Position, e event.Event) error {
	data, err := event.Encode(e)
	if err != nil {
		return err
	}
	return printJSON(s.out, json.RawMessage(fmt.Sprintf(`{"position":%q,%s`, at.String(), data[1:])))
}

// eventPrinter prints the events of a run. Text is printed as it arrives.
type eventPrinter struct {
	printer
	begun bool            // something of the present round was printed
	calls map[string]bool // keys of the calls that were printed; true = was started
}

func newEventPrinter(out io.Writer) *eventPrinter {
	return &eventPrinter{printer: printer{out: out}, calls: map[string]bool{}}
}

// Emit implements eventlog.Sink.
func (p *eventPrinter) Emit(_ event.Position, e event.Event) error {
	switch e := e.(type) {
	case event.TextDelta:
		return p.text(e.Round, e.Text)
	case event.RefusalDelta:
		return p.text(e.Round, e.Text)
	case event.RoundStarted:
		p.begun = false
		p.attempt(e.Round, e.Attempt)
	case event.ModelFallback:
		p.fallback(e.To.String())
	case event.RoundDone:
		p.roundDone(e)
	case event.Started:
		p.line("started", "", "%s   %s at %s UTC", e.RunID, e.Model, e.At.UTC().Format("15:04:05"))
	case event.ToolsListed:
		for _, server := range e.Servers {
			p.listed(server.Server, len(server.Tools), server.Error, "")
		}
	case event.ToolStarted:
		p.asked(e.Key, e.Name, e.Arguments)
		p.calls[e.Key] = true
	case event.ToolDone:
		p.done(e)
	case event.Waiting:
		for _, a := range e.Approvals {
			p.asked(a.Key, a.Name, a.Arguments)
		}
		for _, a := range e.Approvals {
			p.waits(a.Key, a.ID)
		}
	case event.ApprovalDecided:
		p.decided(e.Key, e.ID, e.Decision, e.By, e.Reason)
	case event.Paused:
		p.line("paused", "", "%s", e.Message)
	case event.LimitsRaised:
		p.line("limits", "", "raised by %s", e.By)
	case event.Compacted:
		p.compacted(e)
	case event.HookRan:
		p.hook(e)
	case event.Finished:
		p.ended(e)
	case event.CallDelta, event.Citation, event.ItemDone, event.NativeItem, event.NativeProgress,
		event.ReasoningDelta, event.RelayBody, event.RelayHead: // not printed
	}
	return nil
}

// text prints a piece of text, in the line of its round.
func (p *eventPrinter) text(round int, text string) error {
	left, middle := "", ""
	if !p.begun {
		left, middle = roundName(round), "model"
	}
	p.begun = p.begun || text != ""
	return p.piece(left, middle, text)
}

func (p *eventPrinter) roundDone(e event.RoundDone) {
	cost := usage(e.Usage.Input, e.Usage.Output, -1)
	switch {
	case p.open:
		fmt.Fprint(p.out, cost)
	case !p.begun:
		p.line(roundName(e.Round), "model", "%s", cost)
	}
	p.endLine()
}

// asked prints a call, once.
func (p *eventPrinter) asked(key, name string, arguments json.RawMessage) {
	if _, printed := p.calls[key]; !printed {
		p.call(key, name, string(arguments), "")
	}
	p.calls[key] = false
}

func (p *eventPrinter) done(e event.ToolDone) {
	started, printed := p.calls[e.Key]
	r := result{
		key: e.Key, outcome: string(e.Outcome), text: e.Text, executed: e.Duration > 0 || started,
		server: e.Server, took: e.Duration,
	}
	if !printed {
		r.name = e.Name
	}
	p.result(r)
	delete(p.calls, e.Key)
}

func (p *eventPrinter) ended(e event.Finished) {
	failure := ""
	if e.Failure != nil {
		failure = e.Failure.Message
	}
	p.finished(string(e.Reason), "", failure)
	for _, c := range e.Calls {
		p.call("client", c.Name, c.Arguments, "")
	}
	p.totals(e.Rounds, e.ToolCalls, e.Usage.Input+e.Usage.Output, e.Cost, "")
}

func (p *eventPrinter) hook(e event.HookRan) {
	did := "allowed"
	switch {
	case e.Blocked:
		did = "denied"
	case e.Modified:
		did = "modified"
	case e.Asked:
		did = "asks for approval"
	}
	if e.Status != event.HookSucceeded {
		did += " (" + string(e.Status) + ")"
	}
	p.line("hook", e.Key, "%s at %s: %s", e.ID, e.Event, did)
}

func (p *eventPrinter) compacted(e event.Compacted) {
	switch {
	case e.Failed:
		p.line("compacted", "", "not: the summary was not written")
	case e.After >= e.Before:
		p.line("compacted", "", "not: nothing of the prompt of %d tokens could be left out", e.Before)
	default:
		p.line("compacted", "", "the prompt from %d to %d tokens", e.Before, e.After)
	}
}
