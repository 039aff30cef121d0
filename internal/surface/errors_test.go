package surface

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// reasonable is the format of an API that has types and words of its own.
func reasonable() *Errors {
	return &Errors{
		Types: map[fault.Code]string{fault.NotFound: "missing"}, Codes: map[string]string{"model_not_found": "no_such_model"},
		Object: func(e Error) any { return e },
	}
}

func TestAnErrorIsInTheWordsOfItsAPI(t *testing.T) {
	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{fault.New(fault.NotFound, "model_not_found", "a < b").In("model"), 404, `"Type":"missing","Code":"no_such_model","Message":"a < b","Param":"model"`},
		{fault.New(fault.NotFound, "other", "m"), 404, `"Type":"missing","Code":"other"`},
		{fault.New(fault.Limited, "limited", "m"), 429, `"Type":"","Code":"limited"`},
		{errors.New("CANARY"), 500, `"Code":"internal_error"`},
	} {
		w := httptest.NewRecorder()
		reasonable().Write(w, tt.err)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) || strings.Contains(w.Body.String(), "CANARY") || !strings.HasSuffix(w.Body.String(), "}\n") {
			t.Errorf("status %d: %s, want %d with %s", w.Code, w.Body, tt.status, tt.want)
		}
	}
}

// Whose fault a failed run is, is the same for every surface.
func TestEveryReasonForWhichARunFailsHasAnError(t *testing.T) {
	for reason, want := range map[event.Reason]fault.Code{
		event.Invalid: fault.Unprocessable, event.HookDenied: fault.Forbidden, event.Blocked: fault.Forbidden, event.ModelError: fault.Upstream,
		event.ServerUnavailable: fault.Unavailable, event.ToolAbort: fault.Upstream, event.TooLong: fault.Invalid, event.Lost: fault.Internal,
		event.Cancelled: fault.Conflict, event.CallerGone: fault.Conflict, event.Memory: fault.TooLarge, event.BudgetExceeded: fault.Limited,
	} {
		if got := faultOf(event.Finished{Reason: reason, Failure: &event.Failure{Code: "c", Message: "m"}}, false); got.Code != want || got.Reason != "c" {
			t.Errorf("%s: %s %s, want %s", reason, got.Code, got.Reason, want)
		}
		if got := faultOf(event.Finished{Reason: reason}, false); got.Message == "" || got.Reason == "" {
			t.Errorf("%s without details: %+v", reason, got)
		}
		if !reason.Failed() {
			t.Errorf("%s is not a failure", reason)
		}
	}
	failures := 0
	for _, reason := range event.Reasons() {
		if reason.Failed() {
			failures++
		}
	}
	if failures != 12 {
		t.Errorf("%d reasons are failures: the table of this test is not complete", failures)
	}
}

func TestTheCallerGetsAnErrorOfTheStoreInWords(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for name, tt := range map[string]struct {
		err    error
		reason string
	}{
		"the store":   {fmt.Errorf("x: %w", org.ErrUnavailable), "store_unavailable"},
		"too slow":    {context.DeadlineExceeded, "store_unavailable"},
		"left":        {fmt.Errorf("x: %w", context.Canceled), "caller_gone"},
		"for callers": {fault.New(fault.Invalid, "theirs", "m"), "theirs"},
		"any other":   {errors.New("CANARY"), "internal_error"},
	} {
		if got := fault.From(Failed(log, tt.err)); got.Reason != tt.reason {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if err := Failed(log, nil); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeEncodedIsNotWritten(t *testing.T) {
	w := httptest.NewRecorder()
	if err := WriteJSON(w, 200, math.NaN()); err == nil || w.Body.Len() > 0 || len(w.Header()) > 0 {
		t.Errorf("%v, %q, %v", err, w.Body, w.Header())
	}
}
