package audit

import (
	"encoding/json"
	"math"
	"strconv"
)

// The body of a Request is written without reflection, because there is one for each
// relayed request and for each round. The bytes are those of [json.Marshal].

// bodyBytes is the capacity with which the body of a Request is written.
const bodyBytes = 384

// appendJSON appends the JSON of r. It returns an error where json.Marshal does: for a
// latency that is not a number.
func (r *Request) appendJSON(b []byte) ([]byte, error) {
	w := encoder{b: b}
	w.text(`{"surface":`, r.Surface)
	w.someText(`,"via":`, r.Via)
	w.someText(`,"end_user":`, r.EndUser)
	w.index(`,"round_index":`, r.Round)
	w.index(`,"tool_call_index":`, r.Call)
	w.text(`,"provider":`, r.Provider)
	w.text(`,"model":`, r.Model)
	w.text(`,"target":`, r.Target)
	w.number(`,"attempts":`, int64(r.Attempts))
	w.text(`,"status":`, r.Status)
	w.someNumber(`,"http_status":`, int64(r.HTTPStatus))
	w.someText(`,"error_class":`, r.Class)
	w.someText(`,"stop":`, r.Stop)
	w.number(`,"input_tokens":`, r.InputTokens)
	w.number(`,"output_tokens":`, r.OutputTokens)
	w.someNumber(`,"cached_tokens":`, r.CachedTokens)
	w.someNumber(`,"reasoning_tokens":`, r.ReasoningTokens)
	w.someNumber(`,"cost_nano_usd":`, r.CostNanoUSD)
	w.someNumber(`,"gpu_ms":`, r.GPUMS)
	w.number(`,"tool_calls":`, int64(r.ToolCalls))
	w.someNumber(`,"bytes":`, r.Bytes)
	w.someNumber(`,"estimated_input_tokens":`, r.EstimatedInput)
	w.someNumber(`,"estimated_output_tokens":`, r.EstimatedOutput)
	w.someNumber(`,"estimated_cost_nano_usd":`, r.EstimatedNanoUSD)
	w.float(`,"latency_ms":`, &r.LatencyMS)
	w.float(`,"ttft_ms":`, r.TTFTMS)
	return append(w.b, '}'), w.err
}

// encoder appends members of an object. Each name has the comma before it and the colon
// after it.
type encoder struct {
	b   []byte
	err error // the first error
}

func (w *encoder) text(name, value string) {
	w.b = append(w.b, name...)
	if !isPlain(value) {
		w.other(value)
		return
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, value...)
	w.b = append(w.b, '"')
}

func (w *encoder) someText(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *encoder) number(name string, value int64) {
	w.b = strconv.AppendInt(append(w.b, name...), value, 10)
}

func (w *encoder) someNumber(name string, value int64) {
	if value != 0 {
		w.number(name, value)
	}
}

func (w *encoder) index(name string, value *int) {
	if value == nil {
		w.b = append(append(w.b, name...), "null"...)
		return
	}
	w.number(name, int64(*value))
}

func (w *encoder) float(name string, value *float64) {
	w.b = append(w.b, name...)
	switch {
	case value == nil:
		w.b = append(w.b, "null"...)
	case *value == 0 && !math.Signbit(*value), *value >= 1e-6 && *value < 1e21: // json.Marshal uses no exponent
		w.b = strconv.AppendFloat(w.b, *value, 'f', -1, 64)
	default:
		w.other(*value)
	}
}

// other appends a value as json.Marshal writes it.
func (w *encoder) other(value any) {
	text, err := json.Marshal(value)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.b = append(w.b, text...)
}

// isPlain reports whether the JSON string of text is the text itself between quotes.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c < ' ', c >= 0x7f, c == '"', c == '\\', c == '<', c == '>', c == '&':
			return false
		}
	}
	return true
}
