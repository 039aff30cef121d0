package responses

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Ids of what a provider stores are refused in a relayed body, however they are written.
func TestRelayRefusesIDsOfWhatTheProviderStores(t *testing.T) {
	for body, want := range map[string]string{
		`{"previous_response_id":"resp_1"}`: "unsupported_parameter previous_response_id",
		`{"conversation":{"id":"conv_1"}}`:  "unsupported_parameter conversation",
		`{"prompt":{"id":"pmpt_1"}}`:        "unsupported_parameter prompt.id",
		`{"prompt":null,"input":[]}`:        "",
		`{"input":[{"id":"msg_1"}]}`:        "unsupported_parameter input[0]",
		`{"input":[{"role":"user","content":"x"},{"type":"item_reference","id":"msg_1"}]}`:                                   "unsupported_parameter input[1]",
		`{"input":[{"type":"item_reference","id":"msg_1","Type":"message","role":"user","content":"x"}]}`:                    "unknown_parameter input[0].Type",
		`{"input":[{"type":"item_reference","id":"msg_1","type":"message","role":"user","content":"x"}]}`:                    "invalid_value input[0].type",
		`{"input":[{"id":"msg_1","Role":"user"}]}`:                                                                           "unknown_parameter input[0].Role",
		`{"input":[{"id":"msg_1","role":"user"}]}`:                                                                           "unsupported_parameter input[0]",
		`{"input":[{"type":"message","role":"assistant","id":"msg_1","content":[]}]}`:                                        "unsupported_parameter input[0]",
		`{"input":[{"type":"reasoning","id":"rs_1"}]}`:                                                                       "unsupported_parameter input[0]",
		`{"input":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":""}]}`: "unsupported_parameter input[0]",
		`{"input":[{"type":"image_generation_call","id":"ig_1","status":"completed","result":null}]}`:                        "unsupported_parameter input[0]",
		`{"input":[{"type":"a_later_type","id":"x_1","status":"completed","data":[ ]}]}`:                                     "unsupported_parameter input[0]",
		// What has content passes.
		`{"input":"x","metadata":{"Type":"x"}}`:                                                      "",
		`{"input":[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}]}`:          "",
		`{"input":[{"type":"message","role":"assistant","id":"msg_1","content":"x"}]}`:               "",
		`{"input":[{"type":"function_call_output","id":"fco_1","call_id":"c1","output":""}]}`:        "",
		`{"input":[{"type":"image_generation_call","id":"ig_1","status":"completed","result":"e"}]}`: "",
		`{"input":[{"type":"compaction","id":"cmp_1","encrypted_content":"e"}]}`:                     "",
		`{"input":[{"type":"computer_call_output","call_id":"c","output":{"type":"x","Id":"y"}}]}`:   "",
	} {
		members, err := surface.Scan(nil, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := checkRelay(members); err != nil {
			got = fault.From(err).Reason + " " + fault.From(err).Param
		}
		if got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}

// The loop refuses members that differ from those of the API only by case.
func TestNamesAreCaseSensitive(t *testing.T) {
	for body, want := range map[string]string{
		`{"input":[{"type":"item_reference","id":"msg_1","Type":"message","role":"user","content":"x"}]}`:      "input[0].Type",
		`{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"a","Text":"b"}]}]}`: "input[0].content[0].Text",
		`{"input":[{"type":"message","role":"user","content":"x","ſtatus":"b"}]}`:                              "input[0].ſtatus",
		`{"input":"x","tools":[{"type":"mcp","Type":"web_search"}]}`:                                           "tools[0].Type",
		`{"input":"x","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","Name":"f"}]}]}`:     "tools[0].tools[0].Name",
	} {
		_, _, err := decodedFor(relaying{}, body)
		if f := fault.From(err); err == nil || f.Reason != "unknown_parameter" || f.Param != want || !strings.Contains(f.Message, "case-sensitive") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// An item that only has an id says nothing to the model: it is named as dropped. With nothing
// else, the request is refused.
func TestAnItemThatIsOnlyAnIDIsDropped(t *testing.T) {
	const id = `{"type":"image_generation_call","id":"ig_theirs"}`
	req, reply, err := decodedFor(relaying{}, `{"input":[{"role":"user","content":"x"},`+id+`]}`)
	if err != nil || len(req.Items) != 1 || len(reply.Dropped) != 1 || reply.Dropped[0] != "input[1]" {
		t.Errorf("%v %+v %q", err, req.Items, reply.Dropped)
	}
	if _, _, err := decodedFor(relaying{}, `{"input":[`+id+`]}`); fault.From(err).Param != "input[0]" {
		t.Error(err)
	}
}
