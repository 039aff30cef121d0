package wire

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/relay"
)

// A refusal of stream_options is remembered for a while, and for requests with the same members: one that is refused for
// something else that it has makes no other one cost its reservation. // P63
func TestRefusalsAreOfRequestsWithTheSameMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(body string) asked {
			a, ok := askingOf(&relay.Request{Body: []byte(body)})
			if !ok {
				t.Errorf("%s does not ask", body)
			}
			return a.asked
		}
		var r refusals
		r.add(of(`{"model":"m","stream":true,"messages":[],"data_sources":[]}`))
		again, plain := of(`{"data_sources":[1],"messages":[1],"model":"m","stream":true}`), of(`{"model":"m","stream":true,"messages":[]}`)
		if !r.has(again) || r.has(plain) {
			t.Error("it is remembered for others")
		}
		if r.add(plain); !r.has(asked{model: "m"}) {
			t.Error("it is not remembered for runs")
		}
		time.Sleep(refusalTime)
		if r.has(again) {
			t.Error("it is remembered for ever")
		}
	})
}
