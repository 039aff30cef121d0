package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/wire"
)

// ModelCall is one entry of a scripted model's ledger.
type ModelCall struct {
	Run     int          `json:"run"`
	Round   int          `json:"round"`   // 0-based
	Results []ToolResult `json:"results"` // as they stood in the request
}

// ScriptedModel returns a provider whose turns are written by the request's
// own user message, a [Script]: it waits, then streams the tool calls of the
// next round, or the final text once all rounds have their results.
//
// POST /ledger hands over what it has seen ([]ModelCall) and forgets it.
func ScriptedModel() http.Handler {
	var seen Ledger[ModelCall]
	mux := http.NewServeMux()
	mux.Handle("POST /ledger", &seen)
	mux.HandleFunc("POST "+wire.Path, func(w http.ResponseWriter, r *http.Request) {
		arrived := time.Now()
		body, err := readAll(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		s, round, results, err := understand(body)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		seen.Add(ModelCall{s.Run, round, results})
		pause := time.NewTimer(time.Until(arrived.Add(s.latency())))
		defer pause.Stop()
		select {
		case <-pause.C:
			burst(w, turn(s, round))
		case <-r.Context().Done():
		}
	})
	return mux
}

func understand(body []byte) (s Script, round int, results []ToolResult, err error) {
	var c conversation
	if err := json.Unmarshal(body, &c); err != nil {
		return s, 0, nil, err
	}
	if s, round, results, err = c.parse(); err != nil {
		return s, 0, nil, err
	}
	switch {
	case !c.Stream:
		return s, 0, nil, errors.New("this model only streams")
	case round < len(s.Rounds) && !c.offersTool():
		return s, 0, nil, fmt.Errorf("the request offers no tool %q", ToolName)
	}
	return s, round, results, nil
}

// turn is the model's answer in that round: role, calls or text, end.
func turn(s Script, round int) []byte {
	b := appendChunk(nil, `{"role":"assistant","content":""}`, "")
	reason := "stop"
	if round == len(s.Rounds) {
		b = appendChunk(b, fmt.Sprintf(`{"content":%q}`, s.Final()), "")
	} else {
		reason = "tool_calls"
		for i, ms := range s.Rounds[round] {
			b = appendChunk(b, callDelta(i, s.CallID(round, i), ms), "")
		}
	}
	b = appendChunk(b, "{}", reason)
	return append(b, "data: [DONE]\n\n"...)
}

func callDelta(index, id, ms int) string {
	args := fmt.Sprintf(`{"ms":%d,"id":%d}`, ms, id)
	return fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]}`,
		index, ProviderID(id), ToolName, args)
}

// ProviderID is the model's own id for the tool call of that id.
func ProviderID(id int) string { return fmt.Sprintf("call_%d", id) }

func appendChunk(b []byte, delta, reason string) []byte {
	finish := "null"
	if reason != "" {
		finish = `"` + reason + `"`
	}
	return fmt.Appendf(b, `data: {"id":"chatcmpl-script","object":"chat.completion.chunk","created":1750000000,`+
		`"model":"`+wire.Model+`","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
}
