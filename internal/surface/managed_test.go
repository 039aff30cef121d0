package surface_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// A change that was made is told, also when the org has no memory left for answers: a new key is seen nowhere else.
func TestWhatWasChangedIsTold(t *testing.T) {
	limiter := memlimit.New(memlimit.Options{Run: 10})
	made := 0
	endpoint := surface.Managed(slog.New(slog.DiscardHandler), func(*http.Request, caller.Caller) (int, any, error) {
		made++
		return http.StatusCreated, map[string]string{"key": "tp_secret"}, nil
	})
	for _, method := range []string{"POST", "GET"} {
		account := limiter.Open("o")
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), method, "/api/keys", strings.NewReader("{}"))
		err := endpoint(w, r, caller.Caller{Org: &org.Org{ID: "o"}, Account: account})
		account.Close()
		if told := err == nil && strings.Contains(w.Body.String(), "tp_secret"); told != (method == "POST") {
			t.Errorf("%s: %d changes, %v %s", method, made, err, w.Body)
		}
	}
	if n := limiter.Held(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}
