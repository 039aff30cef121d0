package loop

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode checks that Decode never panics, returns ErrUnknownKind for unknown kinds
// only, and that decoded facts round-trip.
func FuzzDecode(f *testing.F) {
	for _, seed := range [][2]string{
		{"accepted", `{"run_id":"run_1","targets":[{"provider":"p","model":"m"}],"limits":{"rounds":3,"active_ms":1000,"nano_usd":0},"guard":{"mode":"nudge"}}`},
		{"turn", `{"round":0,"purpose":"turn","calls":[{"provider_id":"c","name":"a","arguments":"{}","complete":true}],"stop":"calls","usage":{"input":3}}`},
		{"call_prepared", `{"call_key":"0.0","owner":"gateway","args_digest":"x","verdict":"run"}`}, {"parked", `{"active_ms":-1}`},
		{"no_such_kind", `{}`}, {"finished", `{"reason":"complete","handed":[{"call_key":"0.0","id":"x"}]}`}, {"turn_failed", `{"usage":null}`}, {"expired", `null`},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		body, err := Decode(Version, Kind(kind), data)
		if errors.Is(err, ErrUnknownKind) == slices.Contains(Kinds(), Kind(kind)) {
			t.Fatalf("kind %q: %v", kind, err)
		}
		if err != nil {
			return
		}
		if body.Kind() != Kind(kind) {
			t.Fatalf("%s decoded as %s", kind, body.Kind())
		}
		stored, err := Encode(body)
		if err != nil {
			t.Fatalf("encode %+v: %v", body, err)
		}
		again, err := Decode(Version, body.Kind(), stored)
		if err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		if second, _ := Encode(again); !bytes.Equal(stored, second) {
			t.Fatalf("%s, then %s", stored, second)
		}
	})
}

// FuzzJournal folds an arbitrary stored journal, one fact per line. Decide must return
// an action, Apply must not modify earlier states, and Allowed must be deterministic.
func FuzzJournal(f *testing.F) {
	const head = `accepted {"run_id":"run_1","grade":"durable","parallelism":"parallel","targets":[{},{}],"limits":{"rounds":3,"calls":9,"calls_per_turn":4,"active_ms":60000}}
catalogued {}
input_added {"items_ref":"input","by":"client"}
turn_started {"round":0,"attempt":1,"purpose":"turn"}
`
	f.Add(head + `turn {"purpose":"turn","items_ref":"t","calls":[{"name":"a","complete":true},{"name":"b","complete":true}],"stop":"calls"}
call_prepared {"call_key":"0.0","owner":"gateway","class":"once","verdict":"run"}
call_prepared {"call_key":"0.1","owner":"gateway","class":"read","verdict":"ask"}
call_started {"call_key":"0.0","attempt":1}
call_done {"call_key":"0.0","attempt":1,"outcome":"ok","result_ref":"r"}
call_waiting {"call_key":"0.1","wait_id":"w","on":"approval"}
parked {"active_ms":5}
call_resolved {"wait_id":"w","approved":true}
resumed {"by":"me"}`)
	f.Add(head + `turn_failed {"attempt":1,"class":"transient","retry_at":9223372036854775807}
turn_started {"round":-1,"attempt":-9223372036854775808,"target":99,"purpose":"raw"}
reserved {"round":0,"attempt":2,"amount":{"tokens":-9223372036854775808}}
resumed {}
finished {"reason":"complete"}`)
	f.Add(head + `turn_failed {"attempt":1,"class":"too_long"}
compacted {"until":1,"items_refs":["input","sum"],"before":9,"after":3,"usage":{"output":2}}
hook_ran {"point":"run_start","hook":"h","verdict":"deny","patch_ref":"p","failed":true}
input_added {"items_ref":"late","by":"other","who":"p"}
limits_raised {"by":"p","raise":{"rounds":9223372036854775807,"nano_usd":-1}}
call_waiting {"call_key":"0.0","wait_id":"w","on":"child"}`)
	f.Add(strings.Replace(head, `"rounds":3`, `"on_limit":"pause","rounds":1`, 1) + `turn {"purpose":"turn","items_ref":"t","calls":[{"name":"a","complete":true}],"stop":"calls"}
call_prepared {"call_key":"0.0","owner":"gateway","class":"once","verdict":"run"}
call_started {"call_key":"0.0","attempt":1}
expired {}
call_done {"call_key":"0.0","attempt":1,"outcome":"ok","result_ref":"r"}
paused {"wait_id":"w","reason":"max_rounds","active_ms":9}
limits_raised {"by":"p","wait_id":"w","raise":{"rounds":2,"active_ms":60000}}
resumed {"by":"me"}
paused {"wait_id":"w2","reason":"deadline","refused":"no"}`)
	f.Add("catalogued {}") // no accepted fact
	f.Fuzz(func(t *testing.T, journal string) {
		var s State
		seq := int64(0)
		for line := range strings.SplitSeq(journal, "\n") {
			kind, data, _ := strings.Cut(line, " ")
			body, err := Decode(Version, Kind(kind), []byte(data))
			if err != nil || seq > 200 {
				continue
			}
			seq++
			fact := Fact{Seq: seq, Epoch: 1, At: seq * 100, Version: Version, Body: body}
			first, second := Allowed(s, fact), Allowed(s, fact)
			if (first == nil) != (second == nil) {
				t.Fatalf("%s: %v, then %v", line, first, second)
			}
			before, shadow := s, all(s)
			action := Decide(before)
			s = Apply(s, fact)
			if diff := cmp.Diff(action, Decide(before)); diff != "" {
				t.Fatalf("Apply of %s modified its input:\n%s", line, diff)
			}
			if got := all(before); got != shadow {
				t.Fatalf("Apply of %s modified its input:\n%s\n%s", line, shadow, got)
			}
			if Decide(s) == nil {
				t.Fatalf("no action in %+v", s)
			}
			_, _, _, _ = s.HiddenRefs(), s.Seen(), s.HidesItems(), s.DeadlineAt()
		}
	})
}
