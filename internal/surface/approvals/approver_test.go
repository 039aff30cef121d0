package approvals_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

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
	NoLeaks(t)
	g := RunGated(t, "")
	id, app := g.Key("invoice app", "member")
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
			open := g.Ask(saying(c.messages...), app...)
			a := shownAlone(g, g.Only())
			if a["last_user_message"] != c.want || a["last_user_message_truncated"] != c.cut {
				t.Errorf("the message is %.80q, cut %v", a["last_user_message"], a["last_user_message_truncated"])
			}
			if s, ok := a["last_user_message"].(string); ok && (len(s) > 2048 || !utf8.ValidString(s)) {
				t.Errorf("%d bytes", len(s))
			}
			if a["principal"] != id || a["principal_name"] != "invoice app" || a["decided_by_name"] != nil || a["client"] != "connected" {
				t.Errorf("%v", a)
			}
			g.Decide(a["id"].(string), "deny", "", 200)
			Wait(t, open, "the answer")
			a = shownAlone(g, a["id"].(string))
			if a["decided_by"] != "d" || a["decided_by_name"] != "d" || a["client"] != nil || a["last_user_message"] != c.want {
				t.Errorf("decided: %v", a)
			}
		})
	}
}

// The message is the one before the call, also of a run that waits again. // H02
func TestAnApproverSeesTheMessageOfARunThatWaitsAgain(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	g.Upstream.Answer = func(w http.ResponseWriter, _ *http.Request, got Received) {
		switch strings.Count(string(got.Body), `"role":"tool"`) {
		case 0:
			Asks(Use("delete", `{"n":1}`)).Write(w)
		case 1:
			Asks(Use("delete", `{"n":2}`), Use("delete", `{"n":3}`)).Write(w)
		default:
			Says("done").Write(w)
		}
	}
	open := g.Ask(GatedQuestion)
	g.Decide(g.Only(), "approve", "", 200)
	for _, a := range g.WaitingAre(2) {
		if a["last_user_message"] != "delete it" {
			t.Errorf("%v", a)
		}
		g.Decide(a["id"].(string), "approve", "", 200)
	}
	if text, _ := Wait(t, open, "the answer").Completion(t); text != "done" || g.Executed() != 3 {
		t.Errorf("%q after %d calls", text, g.Executed())
	}
}

// A person who decides sees whether the client is there, can come back, or is gone. // H02
func TestAnApproverSeesWhetherSomebodyWaits(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	_, app := g.Key("app", "member")
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	r := g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(GatedQuestion), append([]string{"Idempotency-Key", "k"}, app...)...)
	go func() {
		resp, err := g.Client.Do(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		close(left)
	}()
	id := g.Only()
	waitForClient(g, id, "connected")
	leave()
	<-left
	waitForClient(g, id, "away")
	again := g.Ask(GatedQuestion, append([]string{"Idempotency-Key", "k"}, app...)...)
	waitForClient(g, id, "connected")
	g.Do("DELETE", "/api/keys/"+shownAlone(g, id)["principal"].(string), "owner-key", "", 200)
	Wait(t, again, "the end of the request")
	waitForClient(g, id, nil)
	if a := shownAlone(g, id); a["status"] != "void" || a["reason"] != "key_revoked" || a["principal_name"] != "app" {
		t.Errorf("%v", a)
	}
}

// Nothing of what was said is shown of a response that is not to be stored, and its client can
// come back; the arguments are shown, because they are decided about. // H02
func TestAnApproverSeesNoMessageOfAResponseThatIsNotStored(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	g.Upstream.Answer = AskGated(Use("delete", `{"n":7}`))
	for body, want := range map[string]any{
		`{"model":"m","input":"delete it","store":false}`: nil,
		`{"model":"m","input":"delete it"}`:               "delete it",
	} {
		if a := g.Send("POST", "/v1/responses", strings.NewReader(body)); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		a := shownAlone(g, g.Only())
		if a["last_user_message"] != want || a["last_user_message_truncated"] != false || fmt.Sprint(a["arguments"]) != "map[n:7]" || a["client"] != "away" {
			t.Errorf("%s: %v", body, a)
		}
		g.Decide(a["id"].(string), "deny", "", 200)
	}
}

// The command line shows the same, and says what the digests are. // H02
func TestTheCommandLineShowsWhoAsksAndWhatFor(t *testing.T) {
	NoLeaks(t)
	g := RunGated(t, "")
	_, app := g.Key("invoice app", "member")
	open := g.Ask(saying(message("user", "delete it\u202e\nby tomorrow"+strings.Repeat("x", 3000))), app...)
	id := g.Only()
	principal := shownAlone(g, id)["principal"].(string)
	for _, c := range []struct {
		env  map[string]string
		more []string
	}{
		{map[string]string{"TURNPIKE_URL": g.URL, "TURNPIKE_KEY": "approver-key"}, []string{"client        connected: "}},
		{map[string]string{"TURNPIKE_URL": g.URL}, []string{"client        unknown: "}}, // reads the store
	} {
		status, out := g.Command(c.env, "show", id)
		for _, want := range append(c.more, "asked by      invoice app ("+principal+")", "  delete it\\u202e\n  by tomorrowxxx", "x\n  (cut after 2 KiB)\n",
			"tool digest   ", "SHA-256 of the definition of the tool", "arguments     ", "SHA-256 of the arguments", "rules         ", "SHA-256 of the approval rules", "\n{\n  \"n\": 7\n}\n") {
			if status != 0 || !strings.Contains(out, want) {
				t.Errorf("%d, without %q:\n%s", status, want, out)
			}
		}
		if status, out := g.Command(c.env, "list"); status != 0 || !strings.Contains(out, "  invoice app  ") {
			t.Errorf("%d %s", status, out)
		}
	}
	g.Decide(id, "deny", "", 200)
	Wait(t, open, "the answer")
	status, out := g.Command(map[string]string{"TURNPIKE_URL": g.URL}, "show", id)
	if status != 0 || !strings.Contains(out, "by d") || strings.Contains(out, "client  ") {
		t.Errorf("%d %s", status, out)
	}
}

// shownAlone returns an approval as it is shown alone. A list must show the same, but for the client, which
// may have come or left meanwhile.
func shownAlone(g *Gated, id string) map[string]any {
	g.T.Helper()
	alone := g.Do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
	for _, a := range Objects(g.Do("GET", "/v1/approvals", "approver-key", "", 200)) {
		a["client"] = alone["client"]
		if a["id"] == id && fmt.Sprint(a) != fmt.Sprint(alone) {
			g.T.Errorf("the list has %v\nalone it is %v", a, alone)
		}
	}
	return alone
}

// waitForClient waits until an approval says this of its client.
func waitForClient(g *Gated, id string, want any) {
	g.T.Helper()
	g.WaitUntil(func() (bool, any) {
		a := g.Do("GET", "/v1/approvals/"+id, "approver-key", "", 200)
		return a["client"] == want, a
	})
}
