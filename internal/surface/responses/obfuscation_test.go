package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// Every delta of a stream is padded to a multiple of 16 bytes, and nothing else is, unless the
// request says otherwise. A stream that is sent again is padded as the first one was, unless its
// request says otherwise.
func TestObfuscation(t *testing.T) {
	NoLeaks(t)
	script := turnpiketest.NewScript(t, strings.Repeat("reasoning Hm.\ntext Once upon\ntext  a time\ncall c1 echo {\"n\":1}\n\ntext Done.\n\n", 3))
	up := turnpiketest.NewUpstream(script, turnpiketest.UpstreamOptions{})
	t.Cleanup(up.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Runtime: "durable: always", Servers: []string{Server("tools", tools.URL)}}.Yaml())
	for options, padded := range map[string]bool{"{}": true, `{"include_obfuscation":true}`: true, `{"include_obfuscation":false}`: false} {
		a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"x","stream":true,"stream_options":`+options+`}`), "Authorization", "Bearer owner-key")
		if dropped := a.Header.Get("Turnpike-Dropped-Params"); dropped != "" {
			t.Errorf("%s: %s is dropped", options, dropped)
		}
		wantPadded(t, a, padded)
		id := last(a.Events(t)).ID
		if again := replayed(g, id, ""); string(again.Body) != string(a.Body) {
			t.Errorf("%s: streamed again:\n%s\nnot\n%s", options, again.Body, a.Body)
		}
		wantPadded(t, replayed(g, id, "&include_obfuscation=true"), true)
		wantPadded(t, replayed(g, id, "&include_obfuscation=false"), false)
		if again := replayed(g, id, "&include_obfuscation=1"); again.Status != 400 {
			t.Errorf("%d %s", again.Status, again.Body)
		}
	}
}

func wantPadded(t *testing.T, a Answer, padded bool) {
	t.Helper()
	deltas := 0
	for text := range strings.SplitSeq(string(a.Body), "\n\n") {
		_, data, is := strings.Cut(text, "\ndata: ")
		if !is {
			continue
		}
		var e struct {
			Type               string
			Delta, Obfuscation *string
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		if e.Delta != nil {
			deltas++
		}
		if (e.Obfuscation != nil) != (padded && e.Delta != nil) || e.Obfuscation != nil && (len(*e.Delta)+len(*e.Obfuscation))%16 != 0 {
			t.Errorf("padded %v: %s", padded, data)
		}
	}
	if deltas < 4 {
		t.Errorf("%d deltas in %s", deltas, a.Body)
	}
}
