package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// longMixedScript asks for the log and for the client's clock in one turn, and
// then reads from the middle of the log.
func longMixedScript(ask chatRequest) turn {
	results := ask.results()
	switch len(results) {
	case 0:
		return turn{Calls: []seenCall{
			{ID: "call_log", Name: "read_log", Arguments: `{}`},
			{ID: "call_time", Name: localTimeTool, Arguments: `{"place":"Kyoto"}`},
		}}
	case 2:
		marker := markerPattern.FindStringSubmatch(strings.Join(results, "\n"))
		if marker == nil || !ask.offers("read_result") {
			return unexpected("a marker, and the tool read_result,", results[1])
		}
		arguments := fmt.Sprintf(`{"id":%q,"offset":%d,"length":4000}`, marker[2], longBytes/2)
		return turn{Calls: []seenCall{{ID: "call_piece", Name: "read_result", Arguments: arguments}}}
	default:
		return turn{Text: results[len(results)-1]}
	}
}

// testLongMixedTurn cuts a result in a mixed turn and reads its middle after the
// client has done its part and the gateway was started again.
func testLongMixedTurn(t *testing.T, s *site) { // A08, P16
	text := longText()
	file := filepath.Join(t.TempDir(), "log.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.newRigWith(t, longMixedScript, func(*rig) []object {
		return []object{{"name": "text", "command": s.child(t, "./servers/text.mjs", file)}}
	})
	c := r.clients[1]
	question := r.ask("gpt-test", "What is in the log at this hour?", false)
	question.Request["tools"] = []object{clientTool(localTimeTool)}
	first := answer(t, c, question)
	wantEqual(t, "finish reasons", []string{"tool_calls"}, first.FinishReasons)
	r.program.restart()
	question.Request["messages"] = append(question.Request["messages"].([]object), returned(first, "12:34 in Kyoto")...)
	wantPiece(t, text, answer(t, c, question).Text)
}
