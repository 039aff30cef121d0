package bedrock

import (
	"bytes"
	"testing"
)

// A block whose start is empty, or of a later version, is what its pieces say.
func TestPiecesSayWhatABlockIs(t *testing.T) {
	stop := frame("messageStop", `{"stopReason":"end_turn"}`)
	for _, start := range []string{`{"contentBlockIndex":0,"start":{}}`, `{"contentBlockIndex":0}`, `{"contentBlockIndex":0,"start":{"later":{"a":1}}}`} {
		body := bytes.Join([][]byte{
			frame("contentBlockStart", start), frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"x","later":[1]}}`),
			frame("contentBlockStop", `{"contentBlockIndex":0}`), stop,
		}, nil)
		got := decoding().Run(bytes.NewReader(body))
		if got.Err != "<nil>" || len(got.Turn.Items) != 1 || got.Turn.Items[0].Text() != "x" {
			t.Errorf("%s: %s %+v", start, got.Err, got.Turn)
		}
	}
	// The input of a call in its start, and again in pieces.
	const call = `{"contentBlockIndex":0,"start":{"toolUse":{"toolUseId":"t","name":"f","input":{"a":1}}}}`
	for _, pieces := range [][]byte{nil, frame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"toolUse":{"input":"{\"a\":1}"}}}`)} {
		got := decoding().Run(bytes.NewReader(bytes.Join([][]byte{frame("contentBlockStart", call), pieces, frame("messageStop", `{"stopReason":"tool_use"}`)}, nil)))
		if got.Err != "<nil>" || len(got.Turn.Calls) != 1 || !got.Turn.Calls[0].Complete || got.Turn.Calls[0].Arguments != `{"a":1}` {
			t.Errorf("%s %+v", got.Err, got.Turn)
		}
	}
}
