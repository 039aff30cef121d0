package responses_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// keyed sends a request with an Idempotency-Key.
func (b *bench) keyed(t *testing.T, sender caller.Caller, key, method, id, body string) answer {
	t.Helper()
	serve := b.CreateConversation
	if method == "ADD" {
		serve = b.AddItems
	}
	return b.do(t, sender, func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		return serve(w, r, caller)
	}, http.MethodPost, id, "", body)
}

// A request that is sent again with its key changes nothing and gets the same answer. With another
// body the key is refused. The keys of a principal are its own. // G14 P11
func TestConversationsWithAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "text never")
		alice := b.caller("acme", "alice")
		const body = `{"metadata":{"topic":"go"},"items":[{"role":"user","content":"Hello."}]}`
		first := b.keyed(t, alice, "k1", "POST", "", body)
		if first.status != 200 {
			t.Fatalf("%+v", first)
		}
		time.Sleep(time.Minute)
		if again := b.keyed(t, alice, "k1", "POST", "", strings.Replace(body, ",", " ,", 1)); again.body != first.body {
			t.Errorf("sent again: %s, want %s", again.body, first.body)
		}
		refused := func(a answer, status int, words string) {
			t.Helper()
			if a.status != status || !strings.Contains(a.body, words) {
				t.Errorf("%d %s, want %d with %s", a.status, a.body, status, words)
			}
		}
		refused(b.keyed(t, alice, "k1", "POST", "", `{}`), 422, "idempotency_key_reused")
		refused(b.keyed(t, alice, "k1", "ADD", first.object.ID, `{"items":[{"role":"user","content":"Hello."}]}`), 422, "idempotency_key_reused")
		refused(b.keyed(t, alice, strings.Repeat("k", 256), "POST", "", body), 400, "invalid_idempotency_key")
		others := map[string]caller.Caller{"another principal": b.caller("acme", "bob"), "another org": b.caller("other", "alice")}
		for who, caller := range others {
			if a := b.keyed(t, caller, "k1", "POST", "", body); a.status != 200 || a.object.ID == first.object.ID {
				t.Errorf("%s: %d %s", who, a.status, a.body)
			}
		}
		// A request that is refused does not use its key.
		refused(b.keyed(t, alice, "k2", "POST", "", `{"items":[{"role":"nobody","content":"x"}]}`), 400, "role")
		id := b.keyed(t, alice, "k2", "POST", "", `{}`).object.ID

		const items = `{"items":[{"role":"user","content":"One."},{"id":"msg_mine","role":"user","content":"Two."}]}`
		added := b.keyed(t, alice, "k3", "ADD", id, items)
		if added.status != 200 || len(added.object.Data) != 2 {
			t.Fatalf("%+v", added)
		}
		if again := b.keyed(t, alice, "k3", "ADD", id, items); again.body != added.body {
			t.Errorf("sent again: %s, want %s", again.body, added.body)
		}
		refused(b.keyed(t, alice, "k4", "ADD", id, items), 400, "item_already_in_conversation")
		refused(b.keyed(t, alice, "k3", "ADD", first.object.ID, items), 422, "idempotency_key_reused")
		if a := b.conversation(t, alice, "LIST", id, "", "", ""); len(a.object.Data) != 2 {
			t.Errorf("%+v", a.texts())
		}
		b.conversation(t, alice, "DELETE item", id, "msg_mine", "", "")
		refused(b.keyed(t, alice, "k3", "ADD", id, items), 404, "were deleted")
		b.conversation(t, alice, "DELETE", id, "", "", "")
		refused(b.keyed(t, alice, "k3", "ADD", id, items), 404, "conversation_not_found")

		time.Sleep(journal.SubmitKeyTTL)
		if later := b.keyed(t, alice, "k1", "POST", "", body); later.status != 200 || later.object.ID == first.object.ID {
			t.Errorf("after a day: %d %s", later.status, later.body)
		}
	})
}

// A request that was cut off at any of its changes is completed by the next one with its key, and
// nothing is made twice. // G14 D05
func TestAConversationWithAKeyIsCompleted(t *testing.T) {
	cut := errors.New("cut off")
	perform := func(b *bench, caller caller.Caller, id string) (a answer, stopped bool) {
		defer func() {
			if r := recover(); r != nil {
				if r != cut {
					panic(r)
				}
				stopped = true
			}
		}()
		if id == "" {
			return b.keyed(t, caller, "k", "POST", "", `{"items":[{"role":"user","content":"Hello."}]}`), false
		}
		return b.keyed(t, caller, "k", "ADD", id, `{"items":[{"id":"msg_mine","role":"user","content":"Hello."}]}`), false
	}
	for _, adds := range []bool{false, true} {
		for at := 1; ; at++ {
			b := newBench(t, "text never")
			alice, id := b.caller("acme", "alice"), ""
			if adds {
				id = b.conversation(t, alice, "POST", "", "", "", `{}`).object.ID
			}
			changes := 0
			b.kept.onChange = func(journal.ConversationKey) {
				if changes++; changes == at {
					panic(cut)
				}
			}
			_, stopped := perform(b, alice, id)
			b.kept.onChange = nil
			if !stopped {
				if at < 4 {
					t.Errorf("only %d changes", at-1)
				}
				break
			}
			a, _ := perform(b, alice, id)
			again, _ := perform(b, alice, id)
			if a.status != 200 || a.body != again.body {
				t.Errorf("cut off at change %d: %d %s, then %s", at, a.status, a.body, again.body)
			}
			if id == "" {
				id = a.object.ID
			}
			if l := b.conversation(t, alice, "LIST", id, "", "", ""); len(l.object.Data) != 1 {
				t.Errorf("cut off at change %d: %s", at, l.body)
			}
		}
	}
}

// Of many requests with one key at the same time, one makes the conversation, and all get it. // G14
func TestConversationsWithAKeyAtOnce(t *testing.T) {
	b := newBench(t, "text never")
	alice := b.caller("acme", "alice")
	var all sync.WaitGroup
	bodies := make([]string, 8)
	for i := range bodies {
		all.Go(func() {
			bodies[i] = b.keyed(t, alice, "k", "POST", "", `{"items":[{"role":"user","content":"Hello."}]}`).body
		})
	}
	all.Wait()
	for _, body := range bodies {
		if body != bodies[0] || !strings.Contains(body, `"id":"conv_`) {
			t.Errorf("%q", bodies)
			break
		}
	}
}

// A stored response is returned with all that is stored of it. What include asks for beside that
// is named, or refused if the org says so. // P11
func TestIncludeOfWhatIsStored(t *testing.T) {
	b := newBench(t, "reasoning Hm.\ntext Hello.")
	alice := b.caller("acme", "alice")
	made := b.post(t, `{"model":"m","input":[{"role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","image_url":"https://x/i.png"}]}]}`)
	if made.status != 200 {
		t.Fatalf("%+v", made)
	}
	id := made.object.ID
	header := ""
	serve := func(e surface.Endpoint) surface.Endpoint {
		return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
			err := e(w, r, caller)
			header = w.Header().Get("Turnpike-Dropped-Params")
			return err
		}
	}
	for query, want := range map[string]string{
		"": "200 ",
		"include[]=message.input_image.image_url":                                 "200 ",
		"include=file_search_call.results&include=web_search_call.action.sources": "200 ",
		"include[]=reasoning.encrypted_content":                                   "200 include",
		"include=message.output_text.logprobs":                                    "200 include",
		"include=secrets":                                                         "400 ",
	} {
		a := b.do(t, alice, serve(b.Get), http.MethodGet, id, query, "")
		if got := fmt.Sprint(a.status, " ", header); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
		if a.status == 200 && a.body != made.body {
			t.Errorf("%s: %s, want %s", query, a.body, made.body)
		}
	}
	for query, want := range map[string]string{"include=message.input_image.image_url": "200 ", "include=reasoning.encrypted_content": "200 ", "include=x": "400 "} {
		a := b.do(t, alice, serve(b.InputItems), http.MethodGet, id, query, "")
		if got := fmt.Sprint(a.status, " ", header); got != want {
			t.Errorf("input_items, %s: %s, want %s", query, got, want)
		}
	}
	alice.Org.Runtime.DroppedParams = "refuse"
	if a := b.do(t, alice, b.Get, http.MethodGet, id, "include=reasoning.encrypted_content", ""); a.status != 400 || !strings.Contains(a.body, `"param":"include"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}
