//go:build unix

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/provider/openai"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
)

// talks are the conversations of a store, one of each kind, by what their clients know of them.
type talks struct {
	Response     string           `json:"response"`     // the last of a chain
	Conversation string           `json:"conversation"` // a named one
	Chat         []map[string]any `json:"chat"`         // messages of the chat session "chat" that its client has seen
	Agent        string           `json:"agent"`
	Session      string           `json:"session"` // of the agent
	Runs         int              `json:"runs"`    // of the gateway
}

// talk answers a message by a call of the tool note, and the result by the message.
func talk(transcript []message) turn {
	var asked string
	for _, m := range transcript {
		if m.Role == "user" {
			asked = m.Content
		}
	}
	if transcript[len(transcript)-1].Role == "tool" {
		return turn{text: []string{"Noted ", asked}}
	}
	return turn{text: []string{"Let me ", "see."}, calls: []call{{fmt.Sprint("c", len(transcript)), "note", fmt.Sprintf(`{"n":%q}`, asked)}}}
}

// isTalk reports whether a transcript is one of a conversation, and not of an errand.
func isTalk(transcript []message) bool {
	return slices.ContainsFunc(transcript, func(m message) bool { return m.Role == "user" && strings.HasPrefix(m.Content, "talk of ") })
}

// talkKinds are the kinds of conversations that a gateway has. The conversation of a program is the fifth: see talkAsProgram.
func talkKinds() map[string]func(w *world, r *talks, text string) {
	return map[string]func(w *world, r *talks, text string){
		"chain": func(w *world, r *talks, text string) {
			r.Response = w.respondTo(text, "previous_response_id", r.Response)
		},
		"conversation": func(w *world, r *talks, text string) {
			if r.Conversation == "" {
				r.Conversation = idOf(w.T, w.exchange(http.MethodPost, "/v1/conversations", []byte("{}"), ""))
			}
			w.respondTo(text, "conversation", r.Conversation)
		},
		"chat": func(w *world, r *talks, text string) {
			r.Chat = append(r.Chat, map[string]any{"role": "user", "content": text})
			body, _ := json.Marshal(map[string]any{"model": "m", "session_id": "chat", "messages": r.Chat}) // strings
			a := w.post(w.Context(), body, "", nil)
			if a.status != http.StatusOK {
				w.Fatalf("%s: %+v", text, a)
			}
			r.Chat = append(r.Chat, map[string]any{"role": "assistant", "content": a.text})
		},
		"session": func(w *world, r *talks, text string) {
			if r.Session == "" {
				r.Agent = w.created("/api/agents", `{"name":"talker","model":"m"}`)
				r.Session = w.created("/api/agents/"+r.Agent+"/sessions", "{}")
			}
			w.talk(r.Agent, r.Session, text, "reject")
		},
	}
}

// respondTo sends a text to the Responses API, with a member unless its value is empty, and returns the id of the response.
func (w *world) respondTo(text, member, value string) string {
	w.Helper()
	members := map[string]any{
		"model": "m", "input": text,
		"tools": []any{map[string]any{"type": "mcp", "server_label": "tools", "require_approval": "never"}},
	}
	if value != "" {
		members[member] = value
	}
	body, _ := json.Marshal(members) // strings
	return idOf(w.T, w.exchange(http.MethodPost, "/v1/responses", body, ""))
}

func idOf(t *testing.T, body []byte) string {
	t.Helper()
	var out struct{ ID string }
	if err := json.Unmarshal(body, &out); err != nil || out.ID == "" {
		t.Fatalf("%s has no id: %v", body, err)
	}
	return out.ID
}

// talkAsProgram sends texts in the session "program" of an agent whose program uses the database of the world.
// No gateway may use it.
func (w *world) talkAsProgram(texts ...string) {
	w.Helper()
	store, err := sqlite.Open(filepath.Join(w.data, "turnpike.db"))
	if err != nil {
		w.Fatal(err)
	}
	agent := &turnpike.Agent{
		Model: openai.Model("m", openai.Options{APIKey: providerKey, BaseURL: w.provider.URL + "/v1", HTTPClient: w.http}),
		Tools: []tool.Tool{tool.Func("note", "Notes.", func(context.Context, struct {
			N string `json:"n"`
		}) (string, error) {
			return "noted", nil
		})},
		Store: store, Conversation: sqlite.NewSessions(store, sqlite.SessionOptions{TTL: -1}), // this process has the true time
	}
	session := agent.Session("program")
	for _, text := range texts {
		if _, err := session.Run(w.Context(), turnpike.Text(text)); err != nil {
			w.Errorf("%s: %v", text, err)
		}
	}
	if err := store.Close(); err != nil {
		w.Error(err)
	}
}

// talkText is the nth message, from 1 on, of a conversation of a kind.
func talkText(kind string, n int) string { return fmt.Sprintf("talk of %s %d", kind, n) }

// talksBefore are the messages that each conversation of a release's store has.
const talksBefore = 2

// begin has the conversations of a release's store, and returns the gateway, which goes on.
func (w *world) beginTalks() (*talks, *process) {
	w.Helper()
	w.talkAsProgram(talkText("program", 1), talkText("program", talksBefore))
	p := w.serve()
	r := &talks{}
	for kind, say := range talkKinds() {
		for n := range talksBefore {
			say(w, r, talkText(kind, n+1))
		}
	}
	r.Runs = len(w.runs())
	return r, p
}

// The conversations of every release go on: the model gets all of their messages, calls and results. // J04 J09 J15
func TestConversationsOfEveryReleaseGoOn(t *testing.T) {
	for _, file := range releaseFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			w, r := openRelease(t, file)
			w.serve()
			for kind, say := range talkKinds() {
				say(w, r.Talks, talkText(kind, talksBefore+1))
				w.wantTalk(kind)
			}
			w, _ = openRelease(t, file) // whose clock is this process's: what has expired since is deleted
			w.talkAsProgram(talkText("program", talksBefore+1))
			w.wantTalk("program")
		})
	}
}

// wantTalk fails the test unless the model has got the whole conversation with its next message.
func (w *world) wantTalk(kind string) {
	w.Helper()
	next := talkText(kind, talksBefore+1)
	var want []string
	for n := range talksBefore {
		text := talkText(kind, n+1)
		want = append(want, "user "+text, "assistant Let me see. note", "tool noted", "assistant Noted "+text)
	}
	want = append(want, "user "+next)
	for _, transcript := range w.provider.transcripts() {
		if last := transcript[len(transcript)-1]; last.Role != "user" || last.Content != next {
			continue
		}
		var got []string
		for _, m := range transcript {
			line := m.Role + " " + m.Content
			for _, c := range m.ToolCalls {
				line += " " + c.Function.Name
			}
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			w.Errorf("%s: the model has got\n%q\nwant\n%q", kind, got, want)
		}
		return
	}
	w.Errorf("%s: the model was not asked %q", kind, next)
}
