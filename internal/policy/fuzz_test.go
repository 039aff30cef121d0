package policy

import "testing"

// FuzzCheck checks that Check is deterministic, that a lower threshold or a stricter
// mode is never more lenient, that exempt calls are allowed, and that the first call of
// a run is never a repetition.
func FuzzCheck(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0}, uint8(3), byte(0))
	f.Add([]byte{0, 1, 0, 1, 0, 1, 0}, uint8(3), byte(1))
	f.Add([]byte{0x80, 0x81, 0x92, 0x43, 0x24}, uint8(2), byte(0x10))
	f.Add([]byte{0x20, 0x21, 0x22, 0x23, 0x24, 0x25}, uint8(0), byte(0x26))
	f.Add([]byte{0x24, 0x20, 0x22}, uint8(2), byte(0x22)) // two repetitions at once: the stricter verdict applies
	f.Fuzz(func(t *testing.T, history []byte, threshold uint8, call byte) {
		var past []PastCall
		for _, b := range history[:min(len(history), Defaults().Window)] {
			past = append(past, pastOf(b, past))
		}
		next := pastOf(call, past)
		next.Result, next.Advised = "", ""
		g := Guard{Mode: Nudge, Threshold: int(threshold % 16)}
		verdict, shape, text := g.Check(past, next)
		if again, _, same := g.Check(past, next); again != verdict || same != text || (verdict == Allow) != (text == "") || (verdict == Allow) != (shape == "") {
			t.Fatalf("%v %q, then %v %q", verdict, text, again, same)
		}
		if verdict == Halt && next.Turn == 0 {
			t.Fatal("a call of the first turn ends the run before the model has read advice")
		}
		if v, _, _ := (Guard{Mode: Fail, Threshold: g.Threshold}).Check(past, next); v != Allow && v != Halt || (v == Allow) != (verdict == Allow) {
			t.Fatalf("verdict with nudge %v, with fail %v", verdict, v)
		}
		if v, _, _ := (Guard{Mode: Off, Threshold: g.Threshold}).Check(past, next); v != Allow {
			t.Fatalf("verdict with off %v", v)
		}
		if g.Threshold > 0 {
			if v, _, _ := (Guard{Mode: Nudge, Threshold: g.Threshold + 1}).Check(past, next); v > verdict {
				t.Fatalf("verdict with threshold %d: %v, with one more: %v", g.Threshold, verdict, v)
			}
		}
		if len(past) == 0 && g.Threshold != 1 && verdict != Allow {
			t.Fatalf("the first call: %v", verdict)
		}
		next.Exempt = true
		if v, _, _ := g.Check(past, next); v != Allow {
			t.Fatalf("exempt: %v", v)
		}
	})
}

// pastOf decodes a call from a byte. It is in the turn of the last past call, or in the
// one after.
func pastOf(b byte, past []PastCall) PastCall {
	turn := int(b >> 3 & 1)
	if n := len(past); n > 0 {
		turn += past[n-1].Turn
	}
	return PastCall{
		Turn: turn,
		Tool: []string{"a", "b"}[b&1], Args: []string{"x", "y", "z", ""}[b>>1&3], Result: []string{"", "r"}[b>>4&1],
		Invalid: b&0x20 != 0, Reads: b&0x80 != 0, Advised: []Pattern{"", []Pattern{Identical, SameResult}[b&1]}[b>>6&1],
	}
}
