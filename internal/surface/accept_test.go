package surface

import (
	"net/http"
	"testing"
)

// Only a client that cannot read a stream gets one JSON object instead.
func TestWhichClientsTakeNoStream(t *testing.T) {
	for accept, want := range map[string]bool{
		"application/json": true, "Application/JSON; charset=utf-8": true, "application/json, text/html": true, "application/*": true,
		"application/json, text/event-stream;q=0": true, "application/json, */*;q=0.0": true,
		"": false, "*/*": false, "text/event-stream": false, "application/json, text/event-stream": false, "application/json, text/plain, */*": false,
		"text/html": false, "application/json;q=0": false, "???": false,
	} {
		if got := WantsJSON(http.Header{"Accept": {accept}}); got != want {
			t.Errorf("%q: %v", accept, got)
		}
	}
	if !WantsJSON(http.Header{"Accept": {"application/json", "text/html"}}) ||
		WantsJSON(http.Header{"Accept": {"application/json", "*/*"}}) ||
		WantsJSON(nil) {
		t.Error("fields of several lines, or no field")
	}
}
