package responses_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
)

// texts are the contents of listed items, with their types.
func (a answer) texts() (list []string) {
	for _, it := range a.object.Data {
		text := fmt.Sprint(it["type"])
		if content, ok := it["content"].([]any); ok {
			text = fmt.Sprint(it["role"], ": ", content[0].(map[string]any)["text"])
		}
		list = append(list, text)
	}
	return list
}

// conversation sends a request for a conversation, or one of its items.
func (b *bench) conversation(t *testing.T, sender caller.Caller, method, id, itemID, query, body string) answer {
	t.Helper()
	serve := map[string]func(http.ResponseWriter, *http.Request, caller.Caller) error{
		"POST": b.UpdateConversation, "GET": b.GetConversation, "DELETE": b.DeleteConversation,
		"ADD": b.AddItems, "LIST": b.ListItems, "GET item": b.GetItem, "DELETE item": b.DeleteItem,
	}
	if id == "" {
		serve["POST"] = b.CreateConversation
	}
	return b.do(t, sender, func(w http.ResponseWriter, r *http.Request, sender caller.Caller) error {
		r.SetPathValue("item", itemID)
		return serve[method](w, r, sender)
	}, http.MethodPost, id, query, body)
}

// A conversation: items that the client adds, and the input and output of responses. The model
// sees all of it, with the hidden calls. // J09 J10
func TestAConversation(t *testing.T) {
	b := newBench(t, "call c1 search {}\n\ntext It is a language.\n\ntext From 2009.\n\ntext Yes.")
	alice, mate := b.caller("acme", "alice"), b.caller("acme", "bob")
	made := b.conversation(t, alice, "POST", "", "", "", `{"metadata":{"topic":"go"},"items":[{"role":"user","content":"Hello."},{"role":"assistant","content":"Hi."}]}`)
	id := made.object.ID
	if made.status != 200 || !strings.HasPrefix(id, "conv_") || made.object.Metadata["topic"] != "go" || !strings.Contains(made.body, `"object":"conversation"`) {
		t.Fatalf("%+v", made)
	}
	first := b.post(t, `{"model":"m","input":"What is Go?","conversation":"`+id+`"}`)
	if first.status != 200 || first.object.Conversation == nil || first.object.Conversation.ID != id {
		t.Fatalf("%+v", first)
	}
	if a := b.conversation(t, mate, "ADD", id, "", "", `{"items":[{"role":"developer","content":"Be brief."}]}`); a.status != 200 || !slices.Equal(a.texts(), []string{"developer: Be brief."}) {
		t.Fatalf("%+v", a)
	}
	second := b.post(t, `{"model":"m","input":"Since when?","conversation":{"id":"`+id+`"}}`)
	want := "message user Hello.\nmessage assistant Hi.\nmessage user What is Go?\ntool_call c1 \ntool_result c1 found\nmessage assistant It is a language.\n" +
		"message developer Be brief.\nmessage user Since when?"
	if got := b.prompt(); second.status != 200 || got != want {
		t.Errorf("got %d\n%s\nwant\n%s", second.status, got, want)
	}
	listed := []string{"user: Hello.", "assistant: Hi.", "user: What is Go?", "assistant: It is a language.", "developer: Be brief.", "user: Since when?", "assistant: From 2009."}
	if a := b.conversation(t, mate, "LIST", id, "", "order=asc", ""); !slices.Equal(a.texts(), listed) || a.object.More {
		t.Errorf("%+v", a)
	}
	var pages []string
	for after, more := "", true; more; {
		a := b.conversation(t, mate, "LIST", id, "", "limit=3&after="+after, "")
		pages, after, more = append(pages, a.texts()...), a.object.Last, a.object.More
	}
	slices.Reverse(pages)
	if !slices.Equal(pages, listed) {
		t.Errorf("pages of three, the latest first: %q", pages)
	}
	// A response of a conversation is continued like any other, with what was in front of it.
	third := b.post(t, `{"model":"m","input":"Sure?","previous_response_id":"`+second.object.ID+`"}`)
	if got := b.prompt(); third.status != 200 || got != want+"\nmessage assistant From 2009.\nmessage user Sure?" {
		t.Errorf("%d\n%s", third.status, got)
	}
}

// Items that are not stored any more do not count for the length of a conversation.
func TestAConversationForgetsItsExpiredParts(t *testing.T) {
	b := newBench(t, "text A.\n\ntext B.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{}`).object.ID
	if _, err := conversation.Change(t.Context(), b.kept, "acme", id, time.Hour, func(c *journal.Conversation) bool {
		for i := range conversation.MaxParts {
			c.Parts = append(c.Parts, conversation.PartOf(fmt.Sprint("gone", i), i%2 == 0))
		}
		return true
	}); err != nil {
		t.Fatal(err)
	}
	b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","content":"1"}]}`)
	b.post(t, `{"model":"m","input":"2","conversation":"`+id+`"}`)
	c, err := conversation.Find(t.Context(), b.kept, "acme", "conv_", id)
	if err != nil || len(c.Parts) != 2 {
		t.Errorf("%v, %d parts", err, len(c.Parts))
	}
	if got := b.prompt(); got != "message user 1\nmessage user 2" {
		t.Error(got)
	}
}

// What is not appended: a response that is not stored.
func TestAResponseThatIsNotStoredIsNotInTheConversation(t *testing.T) {
	b := newBench(t, "text Yes.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", "").object.ID
	b.post(t, `{"model":"m","input":"Well?","store":false,"conversation":"`+id+`"}`)
	a := b.conversation(t, alice, "LIST", id, "", "", "")
	if a.body != `{"object":"list","data":[],"first_id":null,"last_id":null,"has_more":false}`+"\n" {
		t.Errorf("%s", a.body)
	}
}

// One item is read, deleted, and named by its id in another request.
func TestItemsOfAConversation(t *testing.T) {
	b := newBench(t, "text A.\n\ntext B.\n\ntext C.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{}`).object.ID
	b.post(t, `{"model":"m","input":"1","conversation":"`+id+`"}`)
	b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","content":"2"},{"type":"message","id":"msg_mine","role":"user","content":"3"}]}`)
	all := b.conversation(t, alice, "LIST", id, "", "order=asc", "")
	if !slices.Equal(all.texts(), []string{"user: 1", "assistant: A.", "user: 2", "user: 3"}) {
		t.Fatalf("%+v", all)
	}
	said := all.object.Data[1]["id"].(string)
	if a := b.conversation(t, alice, "GET item", id, said, "", ""); a.status != 200 || a.object.ID != said {
		t.Errorf("%+v", a)
	}
	if a := b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","id":"msg_mine","content":"3"}]}`); a.status != 400 || !strings.Contains(a.body, "item_already_in_conversation") {
		t.Errorf("%+v", a)
	}
	b.post(t, `{"model":"m","input":[{"type":"item_reference","id":"`+said+`"},{"role":"user","content":"Again?"}]}`)
	if got := b.prompt(); got != "message assistant A.\nmessage user Again?" {
		t.Errorf("a reference: %s", got)
	}
	for _, gone := range []string{said, "msg_mine", all.object.Data[2]["id"].(string)} {
		if a := b.conversation(t, alice, "DELETE item", id, gone, "", ""); a.status != 200 || a.object.ID != id {
			t.Errorf("%+v", a)
		}
		for _, method := range []string{"GET item", "DELETE item"} {
			if a := b.conversation(t, alice, method, id, gone, "", ""); a.status != 404 {
				t.Errorf("%s of a deleted item: %+v", method, a)
			}
		}
		if a := b.conversation(t, alice, "LIST", id, "", "after="+gone, ""); a.status != 404 || !strings.Contains(a.body, `"param":"after"`) {
			t.Errorf("%+v", a)
		}
	}
	b.post(t, `{"model":"m","input":"4","conversation":"`+id+`"}`)
	if got := b.prompt(); got != "message user 1\nmessage user 4" {
		t.Errorf("after the items were deleted: %s", got)
	}
}

// Many references to items of one response: it is read once, and each item counts as if the
// client had sent it.
func TestManyReferencesToAnItem(t *testing.T) {
	b := newBench(t, "text A.\n\ntext B.")
	text := strings.Repeat("x", 50_000)
	b.post(t, `{"model":"m","input":"`+text+`"}`)
	first := b.post(t, `{"model":"m","input":"`+text+`"}`)
	alice := b.caller("acme", "alice")
	item := b.do(t, alice, b.InputItems, "GET", first.object.ID, "", "").object.Data[0]["id"].(string)
	many := strings.TrimSuffix(strings.Repeat(`{"type":"item_reference","id":"`+item+`"},`, 100), ",")
	alice.Account = memlimit.New(memlimit.Options{Run: 4 << 20}).Open("acme")
	defer alice.Account.Close()
	b.kept.finds.Store(0)
	a := b.do(t, alice, b.Serve, "POST", "", "", `{"model":"m","input":[`+many+`]}`)
	if a.status != 413 || b.kept.finds.Load() > 2 {
		t.Errorf("%d parts were read: %d %.300s", b.kept.finds.Load(), a.status, a.body)
	}
}

// A conversation counts for the memory of the request that continues it, while it is read.
func TestAConversationThatIsTooLarge(t *testing.T) {
	b := newBench(t, "text A.\n\ntext B.\n\ntext C.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", "").object.ID
	for range 10 {
		b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","content":"`+strings.Repeat("x", 100_000)+`"}]}`)
	}
	said := b.post(t, `{"model":"m","input":"x","conversation":"`+id+`"}`)
	for _, continues := range []string{`"conversation":"` + id + `"`, `"previous_response_id":"` + said.object.ID + `"`} {
		for limit, want := range map[int64]int{350 << 10: 413, 8 << 20: 200} {
			small := b.caller("acme", "alice")
			small.Account = memlimit.New(memlimit.Options{Run: limit}).Open("acme")
			b.kept.finds.Store(0)
			a := b.do(t, small, b.Serve, "POST", "", "", `{"model":"m","input":"x","store":false,`+continues+`}`)
			if a.status != want || want == 413 && b.kept.finds.Load() > 6 {
				t.Errorf("%s with %d bytes: %d parts were read: %d %.200s", continues, limit, b.kept.finds.Load(), a.status, a.body)
			}
			small.Account.Close()
		}
	}
}

// Conversations belong to their org. Deleting one ends them; their responses stay.
func TestConversationsBelongToTheirOrg(t *testing.T) {
	b := newBench(t, "text A.")
	alice, other := b.caller("acme", "alice"), b.caller("evil", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","content":"x"}]}`).object.ID
	said := b.post(t, `{"model":"m","input":"1","conversation":"`+id+`"}`)
	item := b.conversation(t, alice, "LIST", id, "", "", "").object.Data[0]["id"].(string)
	refused := func(who caller.Caller) {
		t.Helper()
		for _, method := range []string{"GET", "POST", "ADD", "LIST", "GET item", "DELETE item", "DELETE"} {
			body := map[string]string{"POST": `{"metadata":{}}`, "ADD": `{"items":[{"role":"user","content":"x"}]}`}[method]
			if a := b.conversation(t, who, method, id, item, "", body); a.status != 404 || !strings.Contains(a.body, `"conversation_not_found"`) {
				t.Errorf("%s: %+v", method, a)
			}
		}
		if a := b.do(t, who, b.Serve, "POST", "", "", `{"model":"m","input":"x","conversation":"`+id+`"}`); a.status != 404 {
			t.Errorf("%+v", a)
		}
	}
	refused(other)
	if a := b.do(t, other, b.Serve, "POST", "", "", `{"model":"m","input":[{"type":"item_reference","id":"`+item+`"}]}`); a.status != 404 || !strings.Contains(a.body, "item_not_found") {
		t.Errorf("%+v", a)
	}
	if a := b.conversation(t, alice, "POST", id, "", "", `{"metadata":{"a":"b"}}`); a.status != 200 || a.object.Metadata["a"] != "b" {
		t.Errorf("%+v", a)
	}
	if a := b.conversation(t, alice, "DELETE", id, "", "", ""); a.body != `{"id":"`+id+`","object":"conversation.deleted","deleted":true}`+"\n" {
		t.Errorf("%+v", a)
	}
	refused(alice)
	if a := b.do(t, alice, b.Get, "GET", said.object.ID, "", ""); a.status != 200 {
		t.Errorf("its response: %+v", a)
	}
}

// Two callers delete two items that were added together: both are gone.
func TestItemsAreDeletedAtTheSameTime(t *testing.T) {
	b := newBench(t, "")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","id":"msg_a","content":"1"},{"role":"user","id":"msg_b","content":"2"},{"role":"user","id":"msg_c","content":"3"}]}`).object.ID
	b.kept.onChange = func(key journal.ConversationKey) {
		if key.ID == id {
			b.kept.onChange = nil
			b.conversation(t, alice, "DELETE item", id, "msg_b", "", "")
		}
	}
	a := b.conversation(t, alice, "DELETE item", id, "msg_a", "", "")
	if left := b.conversation(t, alice, "LIST", id, "", "", "").texts(); a.status != 200 || !slices.Equal(left, []string{"user: 3"}) {
		t.Errorf("%d, left %q", a.status, left)
	}
}

// A client that leaves while its conversation is deleted: it is deleted at once, with its items.
func TestAClientLeavesWhileItsConversationIsDeleted(t *testing.T) {
	b := newBench(t, "")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","content":"1"}]}`).object.ID
	b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","content":"2"}]}`)
	ctx, leave := context.WithCancel(t.Context())
	deleted := 0
	b.kept.onChange = func(journal.ConversationKey) { deleted++; leave() }
	r := httptest.NewRequest(http.MethodDelete, "/x", nil).WithContext(ctx)
	r.SetPathValue("id", id)
	if err := b.DeleteConversation(httptest.NewRecorder(), r, alice); err != nil || deleted != 1 {
		t.Errorf("%d deleted: %v", deleted, err)
	}
}

// Items that are added to a conversation that somebody deletes do not stay behind.
func TestItemsAreAddedToADeletedConversation(t *testing.T) {
	b := newBench(t, "")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", "").object.ID
	var part journal.ConversationKey
	b.kept.onChange = func(key journal.ConversationKey) {
		b.kept.onChange = nil
		part = key
		b.conversation(t, alice, "DELETE", id, "", "", "")
	}
	a := b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","content":"2"}]}`)
	if c, err := b.kept.Find(t.Context(), "acme", "", part); a.status != 404 || c != nil || err != nil {
		t.Errorf("%d %+v %v", a.status, c, err)
	}
}

// A number that no float has is stored as it was written, in an item of the client and in the
// input of a response: the conversation can still be listed.
func TestNumbersOfItemsAreKept(t *testing.T) {
	b := newBench(t, "text A.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", "").object.ID
	for _, a := range []answer{
		b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","content":"x","n":12345678901234567890123}]}`),
		b.post(t, `{"model":"m","input":[{"role":"user","content":"x","n":1e999}],"conversation":"`+id+`"}`),
	} {
		if a.status != 200 {
			t.Errorf("%+v", a)
		}
	}
	if a := b.conversation(t, alice, "LIST", id, "", "", ""); a.status != 200 || !strings.Contains(a.body, `"n":1e999`) || !strings.Contains(a.body, `"n":12345678901234567890123`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The ids of added items are compared with those of the conversation in one pass, and with
// each other.
func TestItemsWithIDsAreAdded(t *testing.T) {
	b := newBench(t, "")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", "").object.ID
	for i := range 10 {
		b.conversation(t, alice, "ADD", id, "", "", fmt.Sprintf(`{"items":[{"role":"user","id":"msg_old%d","content":"x"}]}`, i))
	}
	var items []string
	for i := range 20 {
		items = append(items, fmt.Sprintf(`{"role":"user","id":"msg_new%d","content":"x"}`, i))
	}
	b.kept.finds.Store(0)
	if a := b.conversation(t, alice, "ADD", id, "", "", `{"items":[`+strings.Join(items, ",")+`]}`); a.status != 200 || b.kept.finds.Load() > 12 {
		t.Errorf("%d parts were read: %+v", b.kept.finds.Load(), a)
	}
	if a := b.conversation(t, alice, "ADD", id, "", "", `{"items":[`+items[0]+`,`+items[0]+`]}`); a.status != 400 || !strings.Contains(a.body, "item_already_in_conversation") {
		t.Errorf("one id twice: %+v", a)
	}
}

func TestConversationRequestsThatAreRefused(t *testing.T) {
	b := newBench(t, "text A.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{}`).object.ID
	many := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"x"},`, 21), ",")
	for _, tt := range []struct{ method, body, want string }{
		{"POST", `{}`, "metadata"},
		{"POST", `{"metadata":{"a":7}}`, "metadata"},
		{"POST", `{"metadata":{},"title":"x"}`, "title"},
		{"ADD", `{}`, "items"},
		{"ADD", `{"items":[]}`, "items"},
		{"ADD", `{"items":"x"}`, "items"},
		{"ADD", `{"items":[` + many + `]}`, "items"},
		{"ADD", `{"items":[{"role":"user"},{"role":"cook"}]}`, "items[1].role"},
		{"ADD", `{"items":[{"type":"additional_tools","tools":[]}]}`, "items[0].type"},
		{"ADD", `{"items":[{"role":"user","content":"x"},{"type":"banana"}]}`, "items[1].type"},
		{"ADD", `{"items":[{"type":"compaction_trigger"}]}`, "items[0].type"},
		{"ADD", `{"items":[{"role":"user","content":"x","id":"fc_1"}]}`, "items[0].id"},
		{"ADD", `{"items":[{"type":"message","role":"user","content":"x","id":"mine"}]}`, "items[0].id"},
		{"ADD", `{"items":[{"type":"function_call","call_id":"c","name":"f","arguments":"{}","id":"msg_1"}]}`, "items[0].id"},
		{"ADD", `{"items":[{"type":"reasoning","summary":[],"id":"msg_1"}]}`, "items[0].id"},
		{"ADD", `{"items":[{"type":7}]}`, "items[0]"},
		{"ADD", `{"items":[7]}`, "items[0]"},
		{"ADD", `{"items":[`, ""},
	} {
		a := b.conversation(t, alice, tt.method, id, "", "", tt.body)
		if a.status != 400 || tt.want != "" && !strings.Contains(a.body, `"param":"`+tt.want+`"`) {
			t.Errorf("%s %s: %d %s", tt.method, tt.body, a.status, a.body)
		}
	}
	if a := b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"type":"item_reference","id":"msg_1"}]}`); a.status != 404 || !strings.Contains(a.body, `"param":"items[0]"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"type":"banana"}]}`); a.status != 400 || !strings.Contains(a.body, `"invalid_value"`) || !strings.Contains(a.body, `"param":"items[0].type"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/conversations", strings.NewReader(`[]`))
	err := b.CreateConversation(w, r, alice)
	if responses.Errors().Write(w, err); w.Code != 400 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A call of the client's own function in a conversation: its result alone is sent.
func TestAResultOfAClientContinuesAConversation(t *testing.T) {
	b := newBench(t, "call c1 search {}\ncall c2 clock {}\n\ntext It is noon.\n\ntext Yes.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{}`).object.ID
	more := `,"conversation":"` + id + `","tools":[{"type":"function","name":"clock","parameters":{"type":"object"}}]}`
	first := b.post(t, `{"model":"m","input":"Time?"`+more)
	if len(first.object.Output) != 1 {
		t.Fatalf("%+v", first)
	}
	b.post(t, `{"model":"m","input":[{"type":"function_call_output","call_id":"`+first.object.Output[0].CallID+`","output":"12:00"}]`+more)
	b.post(t, `{"model":"m","input":"Sure?"`+more)
	want := "message user Time?\ntool_call c1 \ntool_call c2 \ntool_result c1 found\ntool_result c2 12:00\nmessage assistant It is noon.\nmessage user Sure?"
	if got := b.prompt(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A client may leave out much of an item. What is listed of it is complete, as both
// specifications want it.
func TestListedItemsAreComplete(t *testing.T) { // G15 J10
	const items = `[
		{"role":"user","content":"a"},
		{"role":"assistant","content":"b"},
		{"role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"c"},{"type":"refusal","refusal":"d"}]},
		{"role":"user","content":[{"type":"input_text","text":"e"},{"type":"input_image","image_url":"https://x/i.png"},{"type":"input_image","file_id":"file_1"},
			{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,AA=="},{"type":"input_file","file_url":"https://x/a.pdf"}]},
		{"type":"message","role":"developer","phase":null,"content":[{"type":"input_text","text":"f"}]},
		{"type":"reasoning","summary":[{"type":"summary_text","text":"g"}],"content":null,"encrypted_content":null},
		{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},
		{"type":"function_call_output","call_id":"c1","output":"h"},
		{"type":"function_call","call_id":"c2","name":"f","arguments":"{}","status":null,"id":null,"namespace":null},
		{"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"i"},{"type":"input_image","image_url":"https://x/i.png"}]},
		{"type":"custom_tool_call","call_id":"c3","name":"g","input":"j"},
		{"type":"custom_tool_call_output","call_id":"c3","output":"k"},
		{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"f","input_schema":{"type":"object"}}]},
		{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"f","arguments":"{}","output":"l"}]`
	b := newBench(t, "text A.\n\ntext B.")
	alice := b.caller("acme", "alice")
	var lists []answer
	made := b.post(t, `{"model":"m","input":`+items+`}`)
	if made.status != 200 {
		t.Fatal(made.body)
	}
	lists = append(lists, b.do(t, alice, b.InputItems, "GET", made.object.ID, "limit=100&order=asc", ""))
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":`+items+`}`).object.ID
	lists = append(lists, b.conversation(t, alice, "LIST", id, "", "limit=100&order=asc", ""))
	id = b.conversation(t, alice, "POST", "", "", "", `{}`).object.ID
	lists = append(lists, b.conversation(t, alice, "ADD", id, "", "", `{"items":`+items+`}`))
	for _, a := range lists {
		if len(a.object.Data) != 14 {
			t.Fatal(a.body)
		}
		ids := map[any]bool{}
		for _, it := range a.object.Data {
			ids[it["id"]] = true
		}
		if len(ids) != 14 {
			t.Errorf("%d ids: %s", len(ids), a.body)
		}
	}
}

// walk reads a list page by page, as the clients of OpenAI do, and returns the texts. It stops
// after 20 pages.
func walk(t *testing.T, page func(query string) answer, order string) (texts []string) {
	t.Helper()
	after := ""
	for range 20 {
		a := page("limit=1&order=" + order + "&after=" + after)
		if a.status != 200 {
			t.Fatalf("%+v", a)
		}
		texts = append(texts, a.texts()...)
		if !a.object.More {
			return texts
		}
		after = a.object.Last
	}
	t.Fatalf("the pages do not end: %q", texts)
	return nil
}

// Ids repeat: in the input of a request, in items that are sent again, in references. Each id is
// listed once, where it was first, and the pages end in both orders.
func TestPagingOfRepeatedItems(t *testing.T) {
	b := newBench(t, "text A.\n\ntext B.\n\ntext C.\n\ntext D.\n\ntext E.")
	alice := b.caller("acme", "alice")
	twice := b.post(t, `{"model":"m","input":[{"type":"message","id":"msg_1","role":"user","content":"1"},{"type":"message","id":"msg_1","role":"user","content":"again"},{"role":"user","content":"2"}]}`)
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"type":"message","id":"msg_1","role":"user","content":"1"}]}`).object.ID
	b.post(t, `{"model":"m","input":[{"type":"message","id":"msg_1","role":"user","content":"again"},{"role":"user","content":"2"}],"conversation":"`+id+`"}`)
	said := b.conversation(t, alice, "LIST", id, "", "limit=1", "").object.Last
	for range 2 {
		a := b.post(t, `{"model":"m","input":[{"type":"item_reference","id":"`+said+`"},{"type":"message","id":"msg_3","role":"user","content":"3"},{"type":"item_reference","id":"`+said+`"}],"conversation":"`+id+`"}`)
		if a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	for name, tt := range map[string]struct {
		page func(query string) answer
		want []string
	}{
		"input": {func(query string) answer { return b.do(t, alice, b.InputItems, "GET", twice.object.ID, query, "") }, []string{"user: 1", "user: 2"}},
		"conversation": {func(query string) answer { return b.conversation(t, alice, "LIST", id, "", query, "") },
			[]string{"user: 1", "user: 2", "assistant: B.", "user: 3", "assistant: C.", "assistant: D."}},
	} {
		for _, order := range []string{"asc", "desc"} {
			got := walk(t, tt.page, order)
			if order == "desc" {
				slices.Reverse(got)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s, %s: %q, want %q", name, order, got, tt.want)
			}
		}
	}
	// A deleted item is gone everywhere.
	for _, gone := range []string{"msg_1", said} {
		if a := b.conversation(t, alice, "DELETE item", id, gone, "", ""); a.status != 200 {
			t.Fatalf("%+v", a)
		}
		if a := b.conversation(t, alice, "GET item", id, gone, "", ""); a.status != 404 {
			t.Errorf("%+v", a)
		}
	}
	got := walk(t, func(query string) answer { return b.conversation(t, alice, "LIST", id, "", query, "") }, "asc")
	if want := []string{"user: 2", "user: 3", "assistant: C.", "assistant: D."}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if b.post(t, `{"model":"m","input":"4","conversation":"`+id+`"}`); strings.Contains(b.prompt(), "B.") || strings.Contains(b.prompt(), "again") {
		t.Error(b.prompt())
	}
}

// A client adds an item of a response before the response is part of the conversation.
func TestPagingOfAnItemThatIsInFrontOfItsResponse(t *testing.T) {
	synctest.Test(t, pagingOfAnItemThatIsInFrontOfItsResponse)
}

func pagingOfAnItemThatIsInFrontOfItsResponse(t *testing.T) {
	b := newBench(t, "text A.")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","content":"1"}]}`).object.ID
	b.kept.onChange = func(key journal.ConversationKey) {
		if said, is := strings.CutPrefix(key.ID, "resp_"); is {
			b.kept.onChange = nil
			time.Sleep(time.Millisecond) // ids that are made in one millisecond have no order
			b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"type":"message","id":"msg_`+said+`_in0","role":"user","content":"early"},{"role":"user","content":"2"}]}`)
		}
	}
	b.post(t, `{"model":"m","input":"late","conversation":"`+id+`"}`)
	want := []string{"user: 1", "user: early", "user: 2", "assistant: A."}
	for _, order := range []string{"asc", "desc"} {
		got := walk(t, func(query string) answer { return b.conversation(t, alice, "LIST", id, "", query, "") }, order)
		if order == "desc" {
			slices.Reverse(got)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", order, got, want)
		}
	}
}

// A page of items whose ids the gateway has made is read without the parts in front of it.
func TestAPageReadsItsPartsOnly(t *testing.T) {
	synctest.Test(t, aPageReadsItsPartsOnly)
}

func aPageReadsItsPartsOnly(t *testing.T) {
	b := newBench(t, "")
	alice := b.caller("acme", "alice")
	id := b.conversation(t, alice, "POST", "", "", "", "").object.ID
	for range 10 {
		b.conversation(t, alice, "ADD", id, "", "", `{"items":[{"role":"user","content":"x"}]}`)
		time.Sleep(time.Millisecond) // ids that are made in one millisecond have no order
	}
	b.kept.finds.Store(0)
	if a := b.conversation(t, alice, "LIST", id, "", "limit=1", ""); a.status != 200 || b.kept.finds.Load() > 4 {
		t.Errorf("%d parts were read: %+v", b.kept.finds.Load(), a)
	}
}

// A conversation is not created with one id twice.
func TestAConversationWithOneIDTwice(t *testing.T) {
	b := newBench(t, "")
	a := b.conversation(t, b.caller("acme", "alice"), "POST", "", "", "", `{"items":[{"role":"user","id":"msg_1","type":"message","content":"1"},{"role":"user","id":"msg_1","type":"message","content":"2"}]}`)
	if a.status != 400 || !strings.Contains(a.body, "item_already_in_conversation") || !strings.Contains(a.body, `"param":"items"`) {
		t.Errorf("%+v", a)
	}
}

// A reference counts as the item that it names: a short request cannot refer to more than a body
// may have. Nothing of a refused request is stored. // K08
func TestReferencesCountAsTheItemsTheyName(t *testing.T) {
	b := newBench(t, "text Fine.")
	alice := b.caller("acme", "alice")
	alice.Account = memlimit.New(memlimit.Options{}).Open("acme")
	made := b.conversation(t, alice, "POST", "", "", "", `{"items":[{"role":"user","content":"`+strings.Repeat("x", 900<<10)+`"}]}`)
	listed := b.conversation(t, alice, "LIST", made.object.ID, "", "", "")
	if made.status != 200 || listed.object.Last == "" {
		t.Fatalf("%d %.200s", made.status, listed.body)
	}
	refer := func(times int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(`{"type":"item_reference","id":"`+listed.object.Last+`"},`, times), ",") + "]"
	}
	stores := 0
	b.kept.onChange = func(journal.ConversationKey) { stores++ }
	for _, times := range []int{12, 50} {
		alice.Account = memlimit.New(memlimit.Options{}).Open("acme")
		got := b.do(t, alice, b.Serve, http.MethodPost, "", "", `{"model":"m","input":`+refer(times)+`}`)
		if got.status != 413 || !strings.Contains(got.body, "request_too_large") || !strings.Contains(got.body, `"param":"input[11]"`) || stores > 0 {
			t.Errorf("%d references: %d %.200s, %d changes of the store", times, got.status, got.body, stores)
		}
	}
	alice.Account = memlimit.New(memlimit.Options{}).Open("acme")
	if got := b.do(t, alice, b.Serve, http.MethodPost, "", "", `{"model":"m","input":`+refer(3)+`}`); got.status != 200 || strings.Count(b.prompt(), "message user xxx") != 3 {
		t.Errorf("3 references: %d %.200s", got.status, got.body)
	}
}
