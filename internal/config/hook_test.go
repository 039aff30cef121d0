package config

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Hooks are checked when they are configured. // H18
func TestHooksAreChecked(t *testing.T) {
	for hooks, want := range map[string]string{
		`{id: h, event: OnToolUse, type: rule}`:                                                         "OnToolUse",
		`{id: h, event: PreResponse, type: approval}`:                                                   "only tool calls can wait",
		`{id: h, event: OnRunComplete, type: http, config: {url: "https://e.com", on_error: deny}}`:     "nothing can be denied at OnRunComplete",
		`{id: h, event: OnRunComplete, type: rule, config: {condition: "a IN [1]"}}`:                    "nothing can be denied at OnRunComplete",
		`{id: h, event: OnDelegation, type: http, config: {url: "https://e.com"}}`:                      "OnDelegation",
		`{id: h, event: PreToolUse, type: script}`:                                                      "script",
		`{id: h, event: PreToolUse, type: rule}`:                                                        "condition",
		`{id: h, event: PreToolUse, type: rule, config: {condition: "a LIKE b"}}`:                       "is not an operator",
		`{id: h, event: PreToolUse, type: rule, config: {condition: "a MATCHES ("}}`:                    "regular expression",
		`{id: h, event: PreToolUse, type: rule, config: {rules: [{condition: "a IN x"}]}}`:              "JSON list",
		`{id: h, event: PostToolUse, type: rule, config: {condition: "a IN [1]"}}`:                      "nothing can be denied at PostToolUse",
		`{id: h, event: PostToolUse, type: approval}`:                                                   "only tool calls can wait",
		`{id: h, event: OnRunStart, type: approval}`:                                                    "only tool calls can wait",
		`{id: h, event: OnRunStart, matcher: a, type: rule, config: {condition: "a IN [1]"}}`:           "matcher",
		`{id: h, event: PreToolUse, matcher: "[", type: rule, config: {condition: "a IN [1]"}}`:         "glob",
		`{id: h, event: PreToolUse, type: http}`:                                                        "url",
		`{id: h, event: PreToolUse, type: http, config: {url: "ftp://e.com"}}`:                          "http or https",
		`{id: h, event: PreToolUse, type: http, config: {url: "https://e.com", timeout: 31s}}`:          "timeout",
		`{id: h, event: PreToolUse, type: http, config: {url: "https://e.com", on_error: maybe}}`:       "on_error",
		`{id: h, event: PreToolUse, type: http, config: {url: "https://e.com", secret: "env:X"}}`:       "vault",
		`{id: h, event: PreToolUse, type: http, config: {url: "https://e.com", condition: "a IN [1]"}}`: "is not for the type http",
		`{id: h, event: PreToolUse, type: rule, config: {condition: "a IN [1]", on_error: deny}}`:       "is not for the type rule",
		`{event: PreToolUse, type: rule, config: {condition: "a IN [1]"}}`:                              "id",
		`{id: h, event: PreToolUse, type: approval}, {id: h, event: PreToolUse, type: approval}`:        "another hook",
		strings.Repeat(`{id: h, event: PreToolUse, type: approval},`, 51):                               "at most 50",
	} {
		_, err := Part{Name: "body", Data: []byte("hooks: [" + hooks + "]")}.Runtime(50)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s: %v", hooks, err)
		}
	}
}

// What the management API shows of hooks can be sent back.
func TestHooksAreShownAsTheyAreRead(t *testing.T) {
	const text = `hooks: [{id: h, event: PreToolUse, type: http, matcher: "pay_*", enabled: false, position: 3, keys: [ann], config: {url: "https://e.com/h", secret: "secret:k", timeout: 2s, on_error: deny, include_run_context: true}},
  {id: r, event: OnRunStart, type: rule, config: {rules: [{condition: "a IN [1]", message: "no"}]}}, {id: c, event: PreToolUse, type: rule, config: {condition: "a IN [1]"}}]`
	first, err := Part{Name: "body", Data: []byte(text)}.Runtime(50)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal(RuntimeSettings(first))
	if err != nil {
		t.Fatal(err)
	}
	again, err := Part{Name: "body", Data: shown, Patched: true}.Runtime(50)
	if err != nil {
		t.Fatalf("%v\n%s", err, shown)
	}
	if diff := cmp.Diff(first.Hooks, again.Hooks); diff != "" {
		t.Errorf("%s\n%s", diff, shown)
	}
	if h := first.Hooks[0]; !h.Disabled || h.Position != 3 || fmt.Sprint(h.Keys) != "[ann]" || !h.Config.Context {
		t.Errorf("%+v", h)
	}
}
