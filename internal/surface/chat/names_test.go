package chat

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Ids of what a provider stores are refused in a relay and in the loop, however they are written.
func TestIDsOfWhatTheProviderStoresAreRefused(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","audio":{"id":"audio_1"}}]}`:        "unsupported_parameter messages[1].audio.id",
		`{"messages":[{"role":"assistant","audio":{"ID":"audio_1"}}]}`:                                      "unsupported_parameter messages[0].audio.ID",
		`{"messages":[{"role":"assistant","content":"x","Audio":{"id":"audio_1"}}]}`:                        "unknown_parameter messages[0].Audio",
		`{"messages":[{"role":"assistant","audio":{"id":"audio_1"},"audio":null}]}`:                         "unsupported_parameter messages[0].audio.id",
		`{"messages":[{"role":"user","content":"x"}],"previous_response_id":"resp_1"}`:                      "unsupported_parameter previous_response_id",
		`{"messages":[{"role":"assistant","content":"x","audio":null}],"audio":{"voice":"a","format":"b"}}`: "",
		`{"messages":[{"role":"user","content":"x","custom":{"Audio":1}}]}`:                                 "",
	} {
		members, err := surface.Scan(nil, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := checkIDs(members); err != nil {
			got = fault.From(err).Reason + " " + fault.From(err).Param
		}
		if got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
}
