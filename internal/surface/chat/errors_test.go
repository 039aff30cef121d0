package chat

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

func TestEveryCodeHasAStatusAndAForm(t *testing.T) {
	for code, status := range map[fault.Code]int{
		fault.Invalid: 400, fault.Unauthorized: 401, fault.Forbidden: 403, fault.NotFound: 404, fault.Gone: 410, fault.Method: 405,
		fault.Conflict: 409, fault.TooLarge: 413, fault.Unprocessable: 422, fault.Limited: 429,
		fault.Header: 431, fault.MediaType: 415, fault.Timeout: 408, fault.Misdirected: 421,
		fault.Internal: 500, fault.Upstream: 502, fault.Unavailable: 503, fault.NotConfigured: 501,
	} {
		w := httptest.NewRecorder()
		Errors().Write(w, fault.New(code, "why", "it is %s", "so").In("here"))
		want := `{"error":{"message":"it is so","type":"` + Errors().Types[code] + `","param":"here","code":"why"}}` + "\n"
		if w.Code != status || w.Body.String() != want || Errors().Types[code] == "" {
			t.Errorf("%s: status %d, %s", code, w.Code, w.Body)
		}
	}
	if len(Errors().Types) != 18 {
		t.Errorf("%d codes: the table of this test is not complete", len(Errors().Types))
	}
}

func TestHowLongToWaitIsRoundedUp(t *testing.T) {
	for wait, want := range map[time.Duration]string{0: "", time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2"} {
		w := httptest.NewRecorder()
		Errors().Write(w, &fault.Error{Code: fault.Limited, Message: "wait", RetryAfter: wait})
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v is %q, want %q", wait, got, want)
		}
	}
}

func TestAnErrorOfNoKnownKindIsHidden(t *testing.T) {
	w := httptest.NewRecorder()
	Errors().Write(w, errors.New("CANARY"))
	if want := `{"error":{"message":"the gateway failed; its log says why","type":"server_error","param":null,"code":"internal_error"}}` + "\n"; w.Code != 500 || w.Body.String() != want {
		t.Errorf("status %d, %s", w.Code, w.Body)
	}
}
