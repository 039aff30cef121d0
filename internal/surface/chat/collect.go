package chat

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// collector is the sink of a JSON answer.
type collector struct{ answer }

// Emit implements run.Sink.
func (c *collector) Emit(e event.Event) error {
	return c.add(e)
}

// answerJSON runs to the end and answers with one object.
func (h *Handler) answerJSON(w http.ResponseWriter, r *http.Request, req *run.Request, caller run.Caller) error {
	c := collector{answer{account: caller.Account}}
	if err := h.o.Runner.Run(r.Context(), req, &c); err != nil {
		return unlessGone(r, err)
	}
	setRunID(w, c.started.RunID)
	if c.end.Reason.Failed() {
		writeEnd(w, c.end, caller.Principal.Role.MaySeeAddresses())
		return nil
	}
	if err := caller.Account.Charge(c.kept()); err != nil { // the object that is written
		return err
	}
	writeJSON(w, http.StatusOK, c.completion())
	return nil
}

// kept is how many bytes of text are kept.
func (a *answer) kept() int {
	n := 0
	for i := range a.rounds {
		n += a.rounds[i].text.Cap() + a.rounds[i].reasoning.Cap() + a.rounds[i].refusal.Cap()
	}
	return n
}

func (a *answer) completion() completion {
	msg := message{Role: "assistant", ReasoningContent: a.round().reasoning.String(), ToolCalls: newToolCalls(a.end.Calls, false)}
	if text := a.finalText(); text != "" || len(msg.ToolCalls) == 0 {
		msg.Content = &text
	}
	if refusal := a.round().refusal.String(); refusal != "" {
		msg.Refusal = &refusal
		if msg.Content != nil && *msg.Content == "" {
			msg.Content = nil
		}
	}
	return completion{
		ID: completionID(a.started.RunID), Object: "chat.completion", Created: a.started.At.Unix(), Model: a.started.Model,
		Choices: []choice{{Message: msg, FinishReason: finishReason(a.end.Reason)}},
		Usage:   newUsage(a.end.Usage),
	}
}

// marshal encodes v without escaping HTML, which no client of ours embeds.
func marshal(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // our own types: cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body := append(marshal(v), '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func setRunID(w http.ResponseWriter, runID string) { w.Header().Set("Turnpike-Run-Id", runID) }
