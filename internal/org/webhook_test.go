package org

import (
	"strings"
	"testing"
)

func TestWebhooksWantWhatTheirPatternsMatch(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		event    string
		want     bool
	}{
		{[]string{"*"}, RunWaiting, true},
		{[]string{"budget.*"}, BudgetExceeded, true},
		{[]string{"budget.*"}, RunWaiting, false},
		{[]string{"run.waiting", "budget.*"}, RunWaiting, true},
		{[]string{"response.completed"}, ResponseCompleted, true},
		{[]string{"response.completed"}, ResponseFailed, false},
		{[]string{"resp*"}, ResponseFailed, false},
		{nil, RunWaiting, false},
	} {
		if got := (Webhook{Events: c.patterns}).Wants(c.event); got != c.want {
			t.Errorf("%q wants %s: %t, want %t", c.patterns, c.event, got, c.want)
		}
		if (Webhook{Events: c.patterns, Stopped: StoppedGone}).Wants(c.event) {
			t.Errorf("a stopped webhook wants %s", c.event)
		}
	}
}

func TestPatternsThatMatchNothingAreRefused(t *testing.T) {
	for name, patterns := range map[string][]string{
		"none": {}, "an unknown event": {"run.waiting", "response.done"}, "an unknown kind": {"tool.*"}, "a part of a kind": {"resp*"},
		"empty": {""}, "twice": {"*", "*"}, "a dot": {".*"}, "many": strings.Split(strings.Repeat("*,", MaxWebhookEvents+1), ","),
	} {
		if err := CheckWebhookEvents(patterns); err == nil {
			t.Errorf("%s: %q is accepted", name, patterns)
		}
	}
	if err := CheckWebhookEvents([]string{"*", "response.*", RunWaiting}); err != nil {
		t.Error(err)
	}
}

func TestURLsOfWebhooks(t *testing.T) {
	for _, good := range []string{"https://example.com", "http://example.com:8080/a?b=c", "https://[2001:db8::1]/x"} {
		if err := CheckWebhookURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for name, bad := range map[string]string{
		"no scheme": "example.com/hooks", "another scheme": "ftp://example.com", "no host": "https:///x", "a user": "https://CANARY:p@example.com/", "a fragment": "https://example.com/#CANARY",
		"an empty fragment": "https://example.com/#", "not a URL": "https://%zz", "too long": "https://example.com/" + strings.Repeat("x", MaxWebhookURL), "empty": "",
	} {
		if err := CheckWebhookURL(bad); err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
