package budget

import "testing"

// FuzzPlan checks that the maximum cost of a call covers its prompt and its output
// limit, does not exceed what the run has left, and does not overflow in Fits, for
// numbers of any size.
func FuzzPlan(f *testing.F) {
	f.Add(int64(1000), int64(10), int64(100), int64(300), int64(50), true, int64(5000))
	f.Add(int64(0), int64(0), int64(0), int64(1), int64(1)<<62, true, int64(100))
	f.Add(int64(0), int64(0), int64(1)<<62, int64(1)<<62, int64(1)<<62, true, int64(1))
	f.Add(int64(1)<<62, int64(1)<<62, int64(1), int64(0), int64(0), false, int64(0))
	f.Fuzz(func(t *testing.T, limit, spent, known, fresh, asked int64, shared bool, room int64) {
		if limit < 0 || spent < 0 || known < 0 || fresh < 0 || asked < 0 || room < 1 {
			return // negative counts are not valid input
		}
		l := Limits{Tokens: limit}
		most, output, over := l.Plan(Spent{Tokens: spent}, Call{CountedTokens: known, UncountedBytes: fresh, AskedOutput: asked}, shared)
		if limit == 0 && !shared {
			if over != "" || output != 0 || (most != Amount{}) {
				t.Fatalf("Plan without a limit = %+v, %d, %v", most, output, over)
			}
			return
		}
		if over != "" {
			if limit == 0 {
				t.Fatal("a run without a limit has no room for the call")
			}
			return
		}
		switch prompt := max(known, fresh/bytesPerToken); {
		case output < 1 || asked > 0 && output > asked:
			t.Fatalf("output limit %d, the caller asked for %d", output, asked)
		case most.Tokens < output || most.Tokens-output < min(prompt, maxTokens):
			t.Fatalf("maximum cost %d, prompt %d, output %d", most.Tokens, prompt, output)
		case limit > 0 && most.Tokens > limit-spent:
			t.Fatalf("maximum cost %d, %d left", most.Tokens, limit-spent)
		}
		s := Window{Limit: Amount{Tokens: room}}
		for _, used := range []int64{0, 1, room - 1, room} {
			if s.Fits(Amount{Tokens: used}, most) && (most.Tokens > room || used > room-most.Tokens) {
				t.Fatalf("%d fits into a limit of %d with %d used", most.Tokens, room, used)
			}
		}
	})
}
