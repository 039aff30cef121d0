package hook

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
	"github.com/turnpike-gateway/turnpike/item"
)

// What is a valid answer. "" and {} are values, and whatever else is an error that does not
// contain the answer. // H16 H21
func TestAnswersOfHooks(t *testing.T) {
	empty := ""
	object := `{"a":1}`
	for name, c := range map[string]struct {
		answer string
		want   run.HookAnswer
		err    string
	}{
		"allow":            {answer: `{"action":"allow","modified_input":{"a":1},"more":[]}`, want: run.HookAnswer{Arguments: nil}},
		"deny":             {answer: `{"action":"deny","message":"no"}`, want: run.HookAnswer{Verdict: loop.HookDeny, Message: "no"}},
		"modify arguments": {answer: `{"action":"modify","modified_input":{}}`, want: run.HookAnswer{Verdict: loop.HookModify, Arguments: json.RawMessage("{}")}},
		"modify a result":  {answer: `{"action":"modify","modified_output":""}`, want: run.HookAnswer{Verdict: loop.HookModify, Output: &empty}},
		"modify to JSON":   {answer: `{"action":"modify","modified_output":{"a":1}}`, want: run.HookAnswer{Verdict: loop.HookModify, Output: &object}},
		"null is no value": {answer: `{"action":"modify","modified_output":null,"modified_input":null}`, want: run.HookAnswer{Verdict: loop.HookModify}},
		"another action":   {answer: `{"action":"secret"}`, err: "no action"},
		"no action":        {answer: `{}`, err: "no action"},
		"a list":           {answer: `["secret"]`, err: "not a JSON object"},
		"nothing":          {answer: ``, err: "not a JSON object"},
		"two objects":      {answer: `{"action":"allow"}{"action":"deny"}`, err: "not a JSON object"},
		"too much":         {answer: `{"action":"allow","message":"` + strings.Repeat("x", MaxAnswer) + `"}`, err: "more than"},
		"a wrong type":     {answer: `{"action":7}`, err: "not a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := read(strings.NewReader(c.answer), run.HookQuestion{})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) || strings.Contains(err.Error(), "secret") {
					t.Errorf("%v", err)
				}
				return
			}
			if name == "allow" {
				c.want.Arguments = got.Arguments // it is not used
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

// What is sent, and that it is signed as webhooks are. // H16
func TestARequestIsSigned(t *testing.T) {
	const key = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	var header http.Header
	var body []byte
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, body = r.Header, must(io.ReadAll(r.Body))
		_, _ = io.WriteString(w, `{"action":"allow"}`)
	}))
	defer receiver.Close()
	now := time.Unix(1_800_000_000, 0)
	config := Target{URL: receiver.URL, Headers: map[string]string{"X-Team": "Bearer secret:k"}, Secret: "secret:k", Context: true}
	s := New(Options{
		Client: receiver.Client(), Now: func() time.Time { return now },
		Target: func(_ context.Context, q run.HookQuestion) (Target, error) {
			if q.Org != "o" || q.Principal != "ann" || q.Hook.ID != "h" {
				return Target{}, org.ErrNotFound
			}
			return config, nil
		},
		Secret: func(_ context.Context, orgID, name string) (secret.Value, error) {
			if orgID != "o" || name != "k" {
				return secret.Value{}, errors.New("no such secret")
			}
			return secret.NewValue(key), nil
		},
	})
	output := "result"
	q := run.HookQuestion{
		Org: "o", Principal: "ann", RunID: "run_1", Model: "m", Surface: "chat", Hook: loop.Hook{ID: "h", Point: loop.PostToolUse}, Key: "0.1", Tool: "t",
		Data: json.RawMessage(`{"a":1}`), Output: &output, Label: item.Untrusted,
	}
	if _, err := s.Ask(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	const want = `{"event":"PostToolUse","tool_name":"t","data":{"a":1},"output":"result","label":"untrusted","run":{"execution_id":"run_1","model":"m","key":"ann","surface":"chat","tool_call":"0.1"}}`
	if string(body) != want || header.Get("X-Team") != "Bearer "+key {
		t.Errorf("sent %s with %v", body, header)
	}
	signed := http.Header{}
	if err := webhook.Sign(signed, header.Get(webhook.HeaderID), now, body, must(webhook.ParseSecret(secret.NewValue(key)))); err != nil {
		t.Fatal(err)
	}
	if header.Get(webhook.HeaderSignature) != signed.Get(webhook.HeaderSignature) {
		t.Errorf("signed with %q", header.Get(webhook.HeaderSignature))
	}
	q.Hook.ID = "gone"
	if _, err := s.Ask(t.Context(), q); err == nil {
		t.Error("a hook that is not configured was asked")
	}
	q.Hook.ID, config.Secret = "h", "secret:other"
	if _, err := s.Ask(t.Context(), q); err == nil {
		t.Error("a request was sent without its signature")
	}
	config.Secret, config.Headers = "", map[string]string{"X-Home": "env:HOME"}
	if _, err := s.Ask(t.Context(), q); err == nil {
		t.Error("a hook that is not of the file got a variable of the gateway")
	}
}

// A hook that does not answer has its time. // H16
func TestAHookHasItsTime(t *testing.T) {
	leave := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	defer close(leave)
	s := New(Options{Client: receiver.Client(), Target: func(context.Context, run.HookQuestion) (Target, error) {
		return Target{URL: receiver.URL, Timeout: time.Millisecond}, nil
	}})
	if _, err := s.Ask(t.Context(), run.HookQuestion{Hook: loop.Hook{ID: "h"}, Data: json.RawMessage("{}")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// FuzzAnswer: no answer makes the decoder panic, and an answer that is no error has a known verdict.
func FuzzAnswer(f *testing.F) {
	f.Add(`{"action":"modify","modified_input":{},"modified_output":"x"}`)
	f.Add(`{"action":"deny","message":"m"}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := read(strings.NewReader(text), run.HookQuestion{})
		if err == nil && a.Verdict != "" && a.Verdict != loop.HookDeny && a.Verdict != loop.HookModify {
			t.Fatalf("%q: %+v", text, a)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// What a hook is told after a run, with the id of the message in any case; its answer is not read. // H14 H15 H16
func TestAHookIsToldOfItsRun(t *testing.T) {
	const key = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"
	var header http.Header
	var body []byte
	status, answer := 200, ""
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header, body = r.Header, must(io.ReadAll(r.Body))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer receiver.Close()
	now := time.Unix(1_800_000_000, 0)
	target, targetErr := Target{URL: receiver.URL}, error(nil)
	row, rowErr := string(must(json.Marshal(item.List{item.NewText(item.Assistant, "It is 42.")}))), error(nil)
	s := New(Options{
		Client: receiver.Client(), Now: func() time.Time { return now },
		Target: func(_ context.Context, q run.HookQuestion) (Target, error) {
			if q.Org != "o" || q.RunID != "run_1" || q.Hook.ID != "h" || !q.Hook.Agent || q.Hook.Point != loop.OnRunComplete {
				t.Errorf("asked for the target of %+v", q)
			}
			return target, targetErr
		},
		Secret: func(context.Context, string, string) (secret.Value, error) { return secret.NewValue(key), nil },
		Rows: func(_ context.Context, orgID, runID string, refs []string, _ int) ([]json.RawMessage, error) {
			if orgID != "o" || runID != "run_1" || len(refs) != 1 || refs[0] != "turn:0" {
				t.Errorf("read %q of %s of %s", refs, runID, orgID)
			}
			return []json.RawMessage{json.RawMessage(row)}, rowErr
		},
	})
	m := journal.HookMessage{ID: "msg_1", Org: "o", RunID: "run_1", Hook: "h", Agent: true, AnswerRef: "turn:0", Principal: "ann", Model: "m", Surface: "chat"}
	sent := func(want string) {
		t.Helper()
		if err := s.Tell(t.Context(), m); err != nil || string(body) != want || header.Get(webhook.HeaderID) != "msg_1" {
			t.Errorf("%v: sent %s with %v, want %s", err, body, header, want)
		}
	}
	sent(`{"event":"OnRunComplete","data":{"model":"m","output":"It is 42."},"output":"It is 42."}`)
	if header.Get(webhook.HeaderSignature) != "" {
		t.Errorf("it is signed: %v", header)
	}
	status, answer = 204, ""
	target.Context, target.Secret = true, "secret:k"
	sent(`{"event":"OnRunComplete","data":{"model":"m","output":"It is 42."},"output":"It is 42.","run":{"execution_id":"run_1","model":"m","key":"ann","surface":"chat"}}`)
	signed := http.Header{}
	if err := webhook.Sign(signed, "msg_1", now, body, must(webhook.ParseSecret(secret.NewValue(key)))); err != nil {
		t.Fatal(err)
	}
	if header.Get(webhook.HeaderSignature) != signed.Get(webhook.HeaderSignature) {
		t.Errorf("signed with %q", header.Get(webhook.HeaderSignature))
	}
	target.Context, m.AnswerRef = false, ""
	sent(`{"event":"OnRunComplete","data":{"model":"m"}}`)
	status, answer = 200, `{"action":"deny"}`
	sent(`{"event":"OnRunComplete","data":{"model":"m"}}`)

	m.AnswerRef = "turn:0"
	body = nil
	for name, c := range map[string]struct {
		row       string
		rowErr    error
		targetErr error
		status    int
		want      error // nil = the hook has failed
		asked     bool
	}{
		"it answers 500":             {row: row, status: 500, asked: true},
		"it redirects":               {row: row, status: 302, asked: true},
		"the answer is damaged":      {row: `{`},
		"the run is deleted":         {row: row, rowErr: org.ErrNotFound, want: org.ErrNotFound},
		"the hook is removed":        {row: row, targetErr: org.ErrNotFound, want: org.ErrNotFound},
		"the store cannot be read":   {row: row, rowErr: errors.New("disk I/O error"), want: journal.ErrNotSent},
		"the hooks cannot be read":   {row: row, targetErr: errors.New("disk I/O error"), want: journal.ErrNotSent},
		"the gateway has no memory":  {row: row, rowErr: &memlimit.Refused{}, want: journal.ErrNotSent},
		"a header cannot be written": {row: row, status: 200},
	} {
		row, rowErr, targetErr, status, body = c.row, c.rowErr, c.targetErr, c.status, nil
		target.Headers = nil
		if name == "a header cannot be written" {
			target.Headers = map[string]string{"X": "env:HOME"}
		}
		err := s.Tell(t.Context(), m)
		if c.want != nil && !errors.Is(err, c.want) || c.want == nil && (err == nil || errors.Is(err, org.ErrNotFound) || errors.Is(err, journal.ErrNotSent)) || (body != nil) != c.asked {
			t.Errorf("%s: %v; asked: %v", name, err, body != nil)
		}
	}
}
