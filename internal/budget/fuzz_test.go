package budget

import "testing"

// FuzzPlan: what is set aside for a model call covers its prompt and all that it
// may say, is never more than the run has left, and is one that a shared budget
// can judge, however large the numbers of a client or a provider are.
func FuzzPlan(f *testing.F) {
	f.Add(int64(1000), int64(10), int64(100), int64(300), int64(50), true, int64(5000))
	f.Add(int64(0), int64(0), int64(0), int64(1), int64(1)<<62, true, int64(100))
	f.Add(int64(0), int64(0), int64(1)<<62, int64(1)<<62, int64(1)<<62, true, int64(1))
	f.Add(int64(1)<<62, int64(1)<<62, int64(1), int64(0), int64(0), false, int64(0))
	f.Fuzz(func(t *testing.T, limit, spent, known, fresh, asked int64, shared bool, room int64) {
		if limit < 0 || spent < 0 || known < 0 || fresh < 0 || asked < 0 || room < 1 {
			return // nobody counts below nothing
		}
		l := Limits{Tokens: limit}
		most, output, ok := l.Plan(Spent{Tokens: spent}, Call{Known: known, Fresh: fresh, Asked: asked}, shared)
		if limit == 0 && !shared {
			if !ok || output != 0 || (most != Amount{}) {
				t.Fatalf("nothing limits it, and yet %+v, %d, %v", most, output, ok)
			}
			return
		}
		if !ok {
			if limit == 0 {
				t.Fatal("refused by a run without a limit")
			}
			return
		}
		switch prompt := max(known, fresh/bytesPerToken); {
		case output < 1 || asked > 0 && output > asked:
			t.Fatalf("output %d, asked for %d", output, asked)
		case most.Tokens < output || most.Tokens-output < min(prompt, mostTokens):
			t.Fatalf("%d set aside for a prompt of %d and %d of output", most.Tokens, prompt, output)
		case limit > 0 && most.Tokens > limit-spent:
			t.Fatalf("%d set aside, %d left", most.Tokens, limit-spent)
		}
		s := Shared{Limit: Amount{Tokens: room}}
		for _, used := range []int64{0, 1, room - 1, room} {
			if s.Fits(Amount{Tokens: used}, most) && (most.Tokens > room || used > room-most.Tokens) {
				t.Fatalf("%d fits beside %d into %d", most.Tokens, used, room)
			}
		}
	})
}
