package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/egress"
)

// maxFrame is the size of a line of a stream, in bytes.
const maxFrame = 16 << 20

func runAgent(m *remote) *cobra.Command {
	var session string
	var detached, asJSON bool
	cmd := &cobra.Command{
		Use:   "run NAME MESSAGE",
		Short: "Run an agent and print what happens; NAME is its name or id",
		Long: `Run an agent and print what happens, while it happens: the text of the model, tool calls and
their results, and calls that wait for approval with the commands that decide them. Without
--session the run begins a new session. The exit code is 1 if the run fails or is cancelled.

If the command is interrupted, the run is cancelled, unless it is detached or waits.`,
		Example: `  turnpike agents run helper "What is new?"
  turnpike agents run helper "And yesterday?" --session sess_06gkq4tp7k0019kd0l5gbgo7f8`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := m.agentID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			body := map[string]any{"message": args[1], "detached": detached}
			if session != "" {
				body["session_id"] = session
			}
			show := &framePrinter{out: cmd.OutOrStdout()}
			err = m.stream(cmd.Context(), agentPath(id)+"/run/stream", body, func(frame []byte) error {
				if asJSON {
					if _, err := fmt.Fprintln(show.out, escaped(string(frame))); err != nil {
						return err
					}
					return show.note(frame)
				}
				return show.print(frame)
			})
			show.endLine()
			if err == nil && show.status != "completed" {
				err = fmt.Errorf("the run is not complete: %s", cmp.Or(show.why, show.status, "the stream ended before the run"))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&session, "session", "", "continue the session with this `ID`")
	cmd.Flags().BoolVar(&detached, "detached", false, "let the run go on if this command is interrupted")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each event as one JSON object per line")
	return cmd
}

// stream sends a request and calls each with the frames of the stream that answers it.
func (m *remote) stream(ctx context.Context, path string, in any, each func(frame []byte) error) error {
	key, _ := m.p.Env("TURNPIKE_KEY")
	base, err := m.address()
	if err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	way := egress.New(egress.DefaultPolicy(), egress.Options{})
	defer way.CloseIdleConnections()
	resp, err := way.Operator().RoundTrip(req)
	if err != nil {
		return fmt.Errorf("cannot reach a gateway at %s: %w", base, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var failed struct{ Code, Error string }
		data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20)) // an answer that is cut says less
		if json.Unmarshal(data, &failed) == nil && failed.Error != "" {
			return &refusedError{failed.Code, failed.Error}
		}
		return fmt.Errorf("%s answered %d %s", base, resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxFrame)
	for lines.Scan() {
		if frame, is := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); is {
			if err := each(frame); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("the stream broke off: %w", err)
	}
	return nil
}

// framePrinter prints the frames of a run for people.
type framePrinter struct {
	out         io.Writer
	inText      bool // a line of text has begun
	said        bool // text of the latest step was printed
	run         string
	status, why string
}

// frame is what is printed of a frame.
type frame struct {
	Event      string          `json:"event"`
	RunID      string          `json:"run_id"`
	SessionID  string          `json:"session_id"`
	Delta      string          `json:"delta"`
	Content    string          `json:"content"`
	Tool       string          `json:"tool_name"`
	Arguments  json.RawMessage `json:"arguments"`
	Preview    string          `json:"result_preview"`
	ApprovalID string          `json:"approval_id"`
	Input      json.RawMessage `json:"tool_input"`
	Missing    []string        `json:"missing_servers"`
	Error      string          `json:"error"`
	Status     string          `json:"status"`
}

// note notes what became of the run.
func (p *framePrinter) note(data []byte) error {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return errors.New("the gateway has sent something that is not JSON")
	}
	p.noteFrame(f)
	return nil
}

func (p *framePrinter) noteFrame(f frame) {
	switch f.Event {
	case "start":
		p.run = f.RunID
	case "error":
		p.why = f.Error
	case "complete":
		p.status = f.Status
	}
}

func (p *framePrinter) print(data []byte) error {
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return errors.New("the gateway has sent something that is not JSON")
	}
	p.noteFrame(f)
	switch f.Event {
	case "start":
		p.line("run %s in session %s", f.RunID, f.SessionID)
		if len(f.Missing) > 0 {
			p.line("these MCP servers could not list their tools: %s", strings.Join(f.Missing, ", "))
		}
	case "content_delta":
		p.inText, p.said = p.inText || f.Delta != "", p.said || f.Delta != ""
		_, err := io.WriteString(p.out, escaped(f.Delta))
		return err
	case "chunk": // a piece of the text of an agent without tools, or the text that was printed already
		if !p.said {
			p.inText = p.inText || f.Content != ""
			_, err := io.WriteString(p.out, escaped(f.Content))
			return err
		}
	case "step_started":
		p.said = false
	case "tool_call":
		p.line("→ %s %s", f.Tool, f.Arguments)
	case "tool_result":
		p.line("← %s %s", f.Tool, strings.ReplaceAll(f.Preview, "\n", " "))
	case "approval_requested":
		p.line("%s waits for approval: %s", f.Tool, f.Input)
		p.line("  turnpike approvals approve %s", f.ApprovalID)
		p.line("  turnpike approvals deny %s", f.ApprovalID)
	case "step_completed":
		p.endLine()
	}
	return nil
}

// line prints a line of its own.
func (p *framePrinter) line(format string, args ...any) {
	p.endLine()
	fmt.Fprintln(p.out, plain(fmt.Sprintf(format, args...)))
}

func (p *framePrinter) endLine() {
	if p.inText {
		fmt.Fprintln(p.out)
		p.inText = false
	}
}
