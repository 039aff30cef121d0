package approvals_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// storedRuns returns a data directory with runs of the org o, an hour apart, the
// latest now.
func storedRuns(t *testing.T) string {
	t.Helper()
	data := NewData(t)
	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(data, app.DatabaseFile)})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.AddOrgs(t.Context(), []org.Record{{ID: "o"}}); err != nil {
		t.Fatal(err)
	}
	for i, reason := range []event.Reason{event.Complete, event.ModelError, event.Complete, event.ToolAbort, ""} {
		id := fmt.Sprint("run_", i)
		at := time.Now().Add(time.Duration(i-4) * time.Hour).UnixMilli()
		bodies := []loop.Body{loop.Accepted{RunID: id, Org: "o", Principal: []string{"dev", "ci"}[i%2], Surface: "chat", Policy: loop.Policy{Grade: loop.Light}, Model: "m\u009b"}}
		if reason != "" {
			bodies = append(bodies, loop.Finished{Reason: reason})
		}
		var facts []loop.Fact
		for n, body := range bodies {
			facts = append(facts, loop.Fact{Seq: int64(n + 1), Epoch: 1, At: at, Version: loop.Version, Body: body})
		}
		if err := store.Append(t.Context(), journal.Lease{Org: "o", RunID: id, Epoch: 1, Owner: "x"}, 0, journal.Batch{Facts: facts, Sync: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestRunsListShowsTheRunsThatItsFlagsChoose(t *testing.T) {
	NoLeaks(t)
	data := storedRuns(t)
	for flags, want := range map[string]string{
		"":                                    "run_4 run_3 run_2 run_1 run_0",
		"--state model_error":                 "run_1",
		"--state complete --limit 1":          "run_2",
		"--state complete,running":            "run_4 run_2 run_0",
		"--state tool_abort --state running":  "run_4 run_3",
		"--key ci":                            "run_3 run_1",
		"--key nobody":                        "",
		"--since 90m":                         "run_4 run_3",
		"--since 7d --before run_3 --key dev": "run_2 run_0",
		"--since 2000-01-01T00:00:00Z --state lost":                        "",
		"--since " + time.Now().Add(-150*time.Minute).Format(time.RFC3339): "run_4 run_3 run_2",
	} {
		status, out, errs := RunMain(t, append(strings.Fields("runs list --json --org o --data "+data), strings.Fields(flags)...)...)
		if status != 0 {
			t.Errorf("%s: %d: %s", flags, status, errs)
			continue
		}
		var got []string
		for line := range strings.Lines(out) {
			var r struct{ ID, Model, State string }
			if err := json.Unmarshal([]byte(line), &r); err != nil || r.Model != "m\u009b" || r.State == "" {
				t.Fatalf("%s: %v in %s", flags, err, line)
			}
			got = append(got, r.ID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", flags, got, want)
		}
		_, table, _ := RunMain(t, append(strings.Fields("runs list --org o --data "+data), strings.Fields(flags)...)...)
		if n := strings.Count(table, "\n") - 1; n != len(got) {
			t.Errorf("%s: the table has %d rows, JSON %d:\n%s", flags, n, len(got), table)
		}
	}
}

func TestRunsListRefusesWhatItCannotRead(t *testing.T) {
	data := storedRuns(t)
	for flags, want := range map[string]string{
		"--state failed":     `--state: unknown state "failed"; the states are queued, running, waiting, paused, set_aside, complete, client_calls, max_rounds`,
		"--state ,":          `--state: unknown state ""`,
		"--since 2026-11-21": `--since: "2026-11-21" is not a valid time; use a duration before now such as 90m, 2h or 7d, or a time such as 2026-01-31T12:00:00Z`,
		"--since -2h":        `"-2h" is not a valid time`,
		"--since -7d":        `"-7d" is not a valid time`,
		"--since 99999999d":  `"99999999d" is not a valid time`,
		"--since d":          `"d" is not a valid time`,
		"--before run_9":     "--before: the org o has no run run_9",
	} {
		status, out, errs := RunMain(t, append(strings.Fields("runs list --org o --data "+data), strings.Fields(flags)...)...)
		if status != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: %d, %q, %s, want %s", flags, status, out, errs, want)
		}
	}
}

// Every state is named in the help, in lines that fit.
func TestTheHelpOfRunsListNamesEveryState(t *testing.T) {
	_, help, _ := RunMain(t, "runs", "list", "--help")
	long, _, _ := strings.Cut(help, "Usage:")
	for line := range strings.Lines(long) {
		if len(line) > 80 {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	words := strings.FieldsFunc(long, func(r rune) bool { return strings.ContainsRune(", \n", r) })
	for _, s := range journal.States() {
		if !slices.Contains(words, s) {
			t.Errorf("the help does not name %s:\n%s", s, long)
		}
	}
}

// What a run failed of, and what the provider said, is shown at the end of its
// story and in its JSON.
func TestRunsShowSaysWhyARunFailed(t *testing.T) {
	NoLeaks(t)
	for name, tt := range map[string]struct {
		upstream http.HandlerFunc
		runtime  string
		lines    []string // of the story
		why      string   // of the JSON
		answer   string   // of the JSON
	}{
		"the provider's message": {
			upstream: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"error":{"message":"no such deployment"}}`, http.StatusBadRequest)
			},
			lines: []string{"attempt 1 failed: invalid (status 400)", "The provider up answered 400: no such deployment"},
			why:   "The provider up answered 400: no such deployment", answer: `{"error":{"message":"no such deployment"}}` + "\n",
		},
		"a page of HTML": {
			upstream: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusForbidden)
				_, _ = fmt.Fprint(w, "<html>\n<h1>Blocked\x1b]0;x\a</h1>\u009b31m</html>")
			},
			lines: []string{"The provider up answered 403: a web page, not JSON. Is base_url right?", "answer: <html> <h1>Blocked\ufffd]0;x\ufffd</h1>\ufffd31m</html>"},
			why:   "The provider up answered 403: a web page, not JSON. Is base_url right?", answer: "<html>\n<h1>Blocked\x1b]0;x\a</h1>\u009b31m</html>",
		},
		"a provider that refuses the credential": {
			upstream: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			lines:    []string{"The provider up refuses the gateway's credential (status 401)"},
			why:      "The provider up refuses the gateway's credential (status 401). The operator sets it with api_key of the provider",
		},
		"a provider that hangs up": {
			upstream: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			lines:    []string{"The provider up could not be reached or broke off its answer", "cause: "},
			why:      "The provider up could not be reached or broke off its answer. Retry later; if it happens again, the operator checks base_url of the provider",
		},
		"the round limit": {
			upstream: func(w http.ResponseWriter, _ *http.Request) { Asks(Use("echo", `{}`)).Write(w) }, runtime: "max_rounds: 2",
			lines: []string{"The run reached its limit of 2 rounds (max_rounds)."}, why: "The run reached its limit of 2 rounds (max_rounds).",
		},
		"the call limit": {
			upstream: func(w http.ResponseWriter, _ *http.Request) { Asks(Use("echo", `{}`)).Write(w) }, runtime: "max_calls: 1",
			lines: []string{"The run reached its limit of 1 tool call (max_calls)."}, why: "The run reached its limit of 1 tool call (max_calls).",
		},
		"the token limit": {
			upstream: func(w http.ResponseWriter, _ *http.Request) { Asks(Use("echo", `{}`)).Write(w) }, runtime: "max_run_tokens: 20",
			lines: []string{"The run reached its limit of 20 tokens (max_run_tokens)."}, why: "The run reached its limit of 20 tokens (max_run_tokens).",
		},
		"the deadline": {
			upstream: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, runtime: "deadline: 200ms",
			lines: []string{"The run reached its time limit of 200ms (deadline)."}, why: "The run reached its time limit of 200ms (deadline).",
		},
		"a tool that fails": {
			upstream: func(w http.ResponseWriter, _ *http.Request) { Asks(Use("fail", `{}`)).Write(w) }, runtime: "tool_error_mode: abort",
			lines: []string{"tool fail failed: Error: out of paper"}, why: "tool fail failed: Error: out of paper",
		},
	} {
		t.Run(name, func(t *testing.T) {
			data := NewData(t)
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, _ Received) { tt.upstream(w, r) })
			tools := NewMCP(t, map[string]Handler{"echo": Echo, "fail": func(context.Context, string) (string, error) {
				return "", errors.New("out of paper")
			}})
			g := MustRunIn(t, data, Site{Upstream: up.URL, Runtime: tt.runtime, Servers: []string{Server("s", tools.URL, "max_retries: 0")}}.Yaml(), Environment())
			id := g.Post(Question).Header.Get("Turnpike-Run-Id")
			shown := RunShown(t, data, id)
			for _, line := range tt.lines {
				if !strings.Contains(shown, line) {
					t.Errorf("the story lacks %q:\n%s", line, shown)
				}
			}
			status, out, errs := RunMain(t, "runs", "show", id, "--org", "o", "--data", data, "--json")
			var got struct {
				ID, State, Why string
				ProviderError  struct{ Message, Cause, Answer string } `json:"provider_error"`
				Journal        []struct{ Kind string }
			}
			if err := json.Unmarshal([]byte(out), &got); err != nil || status != 0 || strings.Count(out, "\n") != 1 {
				t.Fatalf("%d, %v: %s%s", status, err, out, errs)
			}
			if got.ID != id || got.Why != tt.why || got.ProviderError.Answer != tt.answer || len(got.Journal) == 0 || got.Journal[len(got.Journal)-1].Kind != "finished" {
				t.Errorf("got %+v, want why %q and answer %q", got, tt.why, tt.answer)
			}
		})
	}
}
