package responses_test

import "testing"

// The conversation that a request continues is read from the store once.
func TestAConversationIsReadOnce(t *testing.T) { // J09 J10
	b := newBench(t, "text A.\n\ntext B.\n\ntext C.\n\ntext D.")
	alice := b.caller("acme", "alice")
	first := b.post(t, `{"model":"m","input":"1"}`).object.ID
	b.kept.finds.Store(0)
	second := b.post(t, `{"model":"m","input":"2","previous_response_id":"`+first+`"}`)
	if second.status != 200 || b.kept.finds.Load() != 1 {
		t.Errorf("%d: one response is read %d times", second.status, b.kept.finds.Load())
	}
	b.kept.finds.Store(0)
	if third := b.post(t, `{"model":"m","input":"3","previous_response_id":"`+second.object.ID+`"}`); third.status != 200 || b.kept.finds.Load() != 2 {
		t.Errorf("%d: two responses are read %d times", third.status, b.kept.finds.Load())
	}
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","content":"Hello."}]}`).object.ID
	b.kept.finds.Store(0)
	if a := b.post(t, `{"model":"m","input":"4","conversation":"`+id+`"}`); a.status != 200 || b.kept.finds.Load() != 3 { // once more to add the response to it
		t.Errorf("%d: a conversation with one part is read %d times", a.status, b.kept.finds.Load())
	}
}
