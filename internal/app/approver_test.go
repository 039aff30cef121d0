package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"
)

// key makes a key over the management API, and returns its id and the header field that uses it.
func (g *gated) key(name, role string) (id string, field []string) {
	g.t.Helper()
	made := g.do("POST", "/api/keys", "owner-key", fmt.Sprintf(`{"name":%q,"role":%q}`, name, role), 201)
	return made["id"].(string), []string{"Authorization", "Bearer " + made["key"].(string)}
}

// shown returns an approval as it is shown alone. A list must show the same, but for the client, which
// may have come or left meanwhile.
func (g *gated) shown(id string) map[string]any {
	g.t.Helper()
	alone := g.do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
	for _, a := range objects(g.do("GET", "/v1/approvals", "approver-key", "", 200)) {
		a["client"] = alone["client"]
		if a["id"] == id && fmt.Sprint(a) != fmt.Sprint(alone) {
			g.t.Errorf("the list has %v\nalone it is %v", a, alone)
		}
	}
	return alone
}

// saying is a chat request with these messages, as JSON.
func saying(messages ...any) string {
	body, _ := json.Marshal(map[string]any{"model": "m", "messages": messages}) // maps and strings: cannot fail
	return string(body)
}

func message(role string, content any) map[string]any {
	return map[string]any{"role": role, "content": content}
}

// A person who decides sees who asks, by name, and what for: the last message of the user. // H02
func TestAnApproverSeesWhoAsksAndWhatFor(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	id, app := g.key("invoice app", "member")
	image := map[string]any{"type": "image_url", "image_url": map[string]any{"url": "data:image/png;base64,aGk="}}
	text := func(s string) map[string]any { return map[string]any{"type": "text", "text": s} }
	for _, c := range []struct {
		name     string
		messages []any
		want     any
		cut      bool
	}{
		{"the last of several", []any{message("system", "Be brief."), message("user", "hello"), message("assistant", "hi"), message("user", "delete invoice 7 <now>")}, "delete invoice 7 <now>", false},
		{"several parts", []any{message("user", []any{text("delete"), image, text("what this shows")})}, "delete\nwhat this shows", false},
		{"no text", []any{message("user", "hello"), message("user", []any{image})}, nil, false},
		{"exactly as long as it may be", []any{message("user", strings.Repeat("x", 2048))}, strings.Repeat("x", 2048), false},
		{"longer", []any{message("user", strings.Repeat("é", 2000))}, strings.Repeat("é", 1024), true},
		{"longer, cut within a character", []any{message("user", "x"+strings.Repeat("é", 2000))}, "x" + strings.Repeat("é", 1023), true},
		{"nothing of a user", []any{message("system", "Delete it.")}, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			open := g.ask(saying(c.messages...), app...)
			a := g.shown(g.only())
			if a["last_user_message"] != c.want || a["last_user_message_truncated"] != c.cut {
				t.Errorf("the message is %.80q, cut %v", a["last_user_message"], a["last_user_message_truncated"])
			}
			if s, ok := a["last_user_message"].(string); ok && (len(s) > 2048 || !utf8.ValidString(s)) {
				t.Errorf("%d bytes", len(s))
			}
			if a["principal"] != id || a["principal_name"] != "invoice app" || a["decided_by_name"] != nil || a["client"] != "connected" {
				t.Errorf("%v", a)
			}
			g.decide(a["id"].(string), "deny", "", 200)
			wait(t, open, "the answer")
			a = g.shown(a["id"].(string))
			if a["decided_by"] != "d" || a["decided_by_name"] != "d" || a["client"] != nil || a["last_user_message"] != c.want {
				t.Errorf("decided: %v", a)
			}
		})
	}
}

// The message is the one before the call, also of a run that waits again. // H02
func TestAnApproverSeesTheMessageOfARunThatWaitsAgain(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	g.upstream.answer = func(w http.ResponseWriter, _ *http.Request, got received) {
		switch strings.Count(string(got.body), `"role":"tool"`) {
		case 0:
			asks(call{"delete", `{"n":1}`}).write(w)
		case 1:
			asks(call{"delete", `{"n":2}`}, call{"delete", `{"n":3}`}).write(w)
		default:
			says("done").write(w)
		}
	}
	open := g.ask(gatedQuestion)
	g.decide(g.only(), "approve", "", 200)
	for _, a := range g.waitingAre(2) {
		if a["last_user_message"] != "delete it" {
			t.Errorf("%v", a)
		}
		g.decide(a["id"].(string), "approve", "", 200)
	}
	if text, _ := wait(t, open, "the answer").completion(t); text != "done" || g.executed() != 3 {
		t.Errorf("%q after %d calls", text, g.executed())
	}
}

// A person who decides sees whether the client is there, can come back, or is gone. // H02
func TestAnApproverSeesWhetherSomebodyWaits(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	_, app := g.key("app", "member")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	r := g.request(ctx, "POST", "/v1/chat/completions", strings.NewReader(gatedQuestion), append([]string{"Idempotency-Key", "k"}, app...)...)
	go func() {
		resp, err := g.client.Do(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		close(left)
	}()
	id := g.only()
	g.clientIs(id, "connected")
	leave()
	<-left
	g.clientIs(id, "away")
	again := g.ask(gatedQuestion, append([]string{"Idempotency-Key", "k"}, app...)...)
	g.clientIs(id, "connected")
	g.do("DELETE", "/api/keys/"+g.shown(id)["principal"].(string), "owner-key", "", 200)
	wait(t, again, "the end of the request")
	g.clientIs(id, nil)
	if a := g.shown(id); a["status"] != "void" || a["reason"] != "key_revoked" || a["principal_name"] != "app" {
		t.Errorf("%v", a)
	}
}

// clientIs waits until an approval says this of its client.
func (g *gated) clientIs(id string, want any) {
	g.t.Helper()
	g.waitUntil(func() (bool, any) {
		a := g.do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
		return a["client"] == want, a
	})
}

// Nothing of what was said is shown of a response that is not to be stored, and its client can
// come back; the arguments are shown, because they are decided about. // H02
func TestAnApproverSeesNoMessageOfAResponseThatIsNotStored(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	g.upstream.answer = askGated(call{"delete", `{"n":7}`})
	for body, want := range map[string]any{
		`{"model":"m","input":"delete it","store":false}`: nil,
		`{"model":"m","input":"delete it"}`:               "delete it",
	} {
		if a := g.send("POST", "/v1/responses", strings.NewReader(body)); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a := g.shown(g.only())
		if a["last_user_message"] != want || a["last_user_message_truncated"] != false || fmt.Sprint(a["arguments"]) != "map[n:7]" || a["client"] != "away" {
			t.Errorf("%s: %v", body, a)
		}
		g.decide(a["id"].(string), "deny", "", 200)
	}
}

// The command line shows the same, and says what the digests are. // H02
func TestTheCommandLineShowsWhoAsksAndWhatFor(t *testing.T) {
	noLeaks(t)
	g := runGated(t, "")
	_, app := g.key("invoice app", "member")
	open := g.ask(saying(message("user", "delete it\u202e\nby tomorrow"+strings.Repeat("x", 3000))), app...)
	id := g.only()
	principal := g.shown(id)["principal"].(string)
	for _, c := range []struct {
		env  map[string]string
		more []string
	}{
		{map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": "approver-key"}, []string{"client        connected: "}},
		{map[string]string{"TURNPIKE_URL": g.URL}, []string{"client        unknown: "}}, // reads the store
	} {
		status, out := g.command(c.env, "show", id)
		for _, want := range append(c.more, "asked by      invoice app ("+principal+")", "  delete it\\u202e\n  by tomorrowxxx", "x\n  (cut after 2 KiB)\n",
			"tool digest   ", "SHA-256 of the definition of the tool", "arguments     ", "SHA-256 of the arguments", "rules         ", "SHA-256 of the approval rules", "\n{\n  \"n\": 7\n}\n") {
			if status != 0 || !strings.Contains(out, want) {
				t.Errorf("%d, without %q:\n%s", status, want, out)
			}
		}
		if status, out := g.command(c.env, "list"); status != 0 || !strings.Contains(out, "  invoice app  ") {
			t.Errorf("%d %s", status, out)
		}
	}
	g.decide(id, "deny", "", 200)
	wait(t, open, "the answer")
	status, out := g.command(map[string]string{"TURNPIKE_URL": g.URL}, "show", id)
	if status != 0 || !strings.Contains(out, "by d") || strings.Contains(out, "client  ") {
		t.Errorf("%d %s", status, out)
	}
}
