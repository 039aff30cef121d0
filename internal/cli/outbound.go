package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
)

func outboundCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outbound",
		Short: "Test URLs against the outbound policy",
		Args:  func(cmd *cobra.Command, args []string) error { return misuse(cobra.NoArgs(cmd, args)) },
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return misuse(err) })
	cmd.AddCommand(checkOutbound(p))
	return cmd
}

func checkOutbound(p Process) *cobra.Command {
	var file string
	var offline bool
	cmd := &cobra.Command{
		Use:   "check [URL...]",
		Short: "Check whether the outbound policy allows a URL",
		Long: `Check URLs against the outbound policy, as the gateway does for MCP servers. The
policy comes from the configuration file, if there is one, and the
TURNPIKE_OUTBOUND_SSRF_… variables. The command opens no connection and needs no provider key. Results:

  ok ADDRESS...      the gateway would try these addresses in order
  refused REASON     loopback, private, metadata, internal_name, …

For one URL, the command prints the result. For several URLs it prints one line
each: the URL, a tab and the result. Without URLs, or with -, it reads URLs from
standard input, one per line.

The exit status is 0 if all URLs are ok, 1 if one is refused, and 2 if the command
or the configuration is invalid.`,
		Example: `  turnpike outbound check https://mcp.example.com/mcp
  turnpike outbound check --config turnpike.yaml --offline < urls.txt`,
		RunE: func(cmd *cobra.Command, urls []string) error {
			way, err := newEgress(p, file)
			if err != nil {
				return misuse(err)
			}
			defer way.CloseIdleConnections()
			j := &judge{way: way, offline: offline, out: cmd.OutOrStdout()}
			if len(urls) == 0 || len(urls) == 1 && urls[0] == "-" {
				return j.lines(cmd.Context(), cmd.InOrStdin())
			}
			return j.all(cmd.Context(), urls)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	cmd.Flags().BoolVar(&offline, "offline", false, "do not resolve names; check only the URL text and literal addresses")
	return cmd
}

// newEgress returns the way out that serve would build. What else stands in the
// file must be right, and its secrets need not be there.
func newEgress(p Process, file string) (*egress.Egress, error) {
	var c *config.Config
	var err error
	if file = configFile(file); file != "" {
		c, err = config.Load(file, p.Env)
	} else {
		c, _, err = config.Default(p.Env)
	}
	if err != nil {
		return nil, err
	}
	var o egress.Options
	if own, err := netip.ParseAddrPort(c.Listen); err == nil { // a name stands for what only serve finds out
		o.Listen = []netip.AddrPort{own}
	}
	return egress.New(app.OutboundPolicy(c.Outbound.SSRF), o), nil
}

// judge prints verdicts and remembers whether one was a refusal.
type judge struct {
	way     *egress.Egress
	offline bool
	out     io.Writer
	refused bool
}

// all judges the URLs of the command line.
func (j *judge) all(ctx context.Context, urls []string) error {
	for _, u := range urls {
		verdict := j.verdict(ctx, u)
		if len(urls) > 1 {
			verdict = oneLine(u) + "\t" + verdict
		}
		if _, err := fmt.Fprintln(j.out, verdict); err != nil {
			return misuse(err)
		}
	}
	return j.end(ctx)
}

// lines judges every line of in as it comes. Nothing but the newline is taken
// off: a space or a carriage return at the end is part of the URL, and refused.
func (j *judge) lines(ctx context.Context, in io.Reader) error {
	lines := readLines(ctx, in)
	for {
		l, ok := next(ctx, lines)
		switch {
		case !ok:
			return j.end(ctx)
		case l.err != nil:
			return misuse(fmt.Errorf("standard input: %w", l.err))
		}
		if _, err := fmt.Fprintf(j.out, "%s\t%s\n", oneLine(l.text), j.verdict(ctx, l.text)); err != nil {
			return misuse(err)
		}
	}
}

// end returns the exit status.
func (j *judge) end(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return misuse(errors.New("interrupted"))
	case j.refused:
		return &exitError{status: 1}
	}
	return nil
}

func (j *judge) verdict(ctx context.Context, rawURL string) string {
	text, err := j.permitted(ctx, rawURL)
	if err == nil {
		return "ok " + text
	}
	j.refused = true
	var blocked *egress.BlockedError
	if errors.As(err, &blocked) {
		return "refused " + blocked.Reason
	}
	return "refused unresolved" // the operator's own resolver says no; a run would go on without the server
}

// permitted returns where the gateway would connect to.
func (j *judge) permitted(ctx context.Context, rawURL string) (string, error) {
	if !j.offline {
		addrs, err := j.way.Resolve(ctx, rawURL)
		words := make([]string, len(addrs))
		for i, a := range addrs {
			words[i] = a.Unmap().String()
		}
		return strings.Join(words, " "), err
	}
	target, err := j.way.CheckURL(rawURL)
	if err != nil || target.Addr.IsValid() {
		return target.Addr.Unmap().String(), err
	}
	return target.Host + " (not resolved)", nil
}

// oneLine returns a URL as it is, or quoted as in Go when a terminal would not
// show it as it is: with a tab in it, a newline, a zero-width space.
func oneLine(url string) string {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if utf8.ValidString(url) && !strings.ContainsFunc(url, hidden) {
		return url
	}
	return strconv.Quote(url)
}

// line is a line without its newline, or why there are no more.
type line struct {
	text string
	err  error
}

// readLines sends the lines of in until its end. Its goroutine may outlive ctx,
// because nothing interrupts the reading of a terminal; the process ends then.
func readLines(ctx context.Context, in io.Reader) <-chan line {
	lines := make(chan line)
	go func() {
		defer close(lines)
		for r := bufio.NewReader(in); ; {
			text, err := r.ReadString('\n')
			if text == "" && errors.Is(err, io.EOF) {
				return
			}
			if errors.Is(err, io.EOF) {
				err = nil // a last line without its newline; the next reading says EOF again
			}
			select {
			case lines <- line{strings.TrimSuffix(text, "\n"), err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// next returns the next line; false at the end of the lines or of ctx.
func next(ctx context.Context, lines <-chan line) (line, bool) {
	select {
	case l, ok := <-lines:
		return l, ok
	case <-ctx.Done():
		return line{}, false
	}
}
