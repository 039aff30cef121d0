package httpd

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
	"github.com/turnpike-gateway/turnpike/internal/surface/agents"
	"github.com/turnpike-gateway/turnpike/internal/surface/approvals"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
	"github.com/turnpike-gateway/turnpike/internal/surface/runs"
)

// formOf says whose error format a body has.
func formOf(body string) string {
	switch {
	case strings.Contains(body, `{"other":`):
		return "other"
	case strings.HasPrefix(body, `{"error":{"message":`) && strings.Contains(body, `"type":`):
		return "chat"
	case strings.HasPrefix(body, `{"error":{"code":`):
		return "admin"
	case strings.HasPrefix(body, `{"error":"`):
		return "agents"
	}
	return body
}

// allRoutes returns the routes of the surfaces. Their endpoints must not be called.
func allRoutes() []surface.Route {
	return slices.Concat((*chat.Handler)(nil).Routes(), (*responses.Handler)(nil).Routes(), (*runs.Handler)(nil).Routes(),
		(*approvals.Handler)(nil).Routes(), (*admin.Handler)(nil).Routes(), (*agents.Handler)(nil).Routes())
}

// withOther returns an API that has a route of another API, whose path says nothing of it.
func withOther(t *testing.T) *API {
	t.Helper()
	o := Options{
		Directory: noKeys{},
		Document:  admin.ServeDocument,
		Health:    func() error { return nil },
		Hosts:     []string{"gateway.example"},
	}
	format := &surface.Errors{Object: func(e surface.Error) any { return map[string]string{"other": e.Code} }}
	never := func(http.ResponseWriter, *http.Request, caller.Caller) error { panic("the endpoint was called") }
	o.Routes = append(allRoutes(), surface.Group{Errors: format, MaxBody: 1}.Route("POST /v1/other", never))
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The error format belongs to the route, also for what is found before the endpoint is
// called, and for another method of its path.
func TestTheErrorFormatBelongsToTheRoute(t *testing.T) {
	a := withOther(t)
	for _, rt := range []struct{ method, path, form string }{
		{"POST", "/v1/chat/completions", "chat"}, {"GET", "/v1/models", "chat"}, {"GET", "/v1/models/a/b", "chat"},
		{"GET", "/v1/runs", "chat"}, {"GET", "/v1/runs/run_1", "chat"}, {"GET", "/v1/runs/run_1/events", "chat"}, {"POST", "/v1/runs/run_1/cancel", "chat"},
		{"POST", "/api/runs/run_1/cancel", "admin"}, {"GET", "/api/keys", "admin"}, {"DELETE", "/api/keys/key_1", "admin"}, {"POST", "/api/orgs", "admin"},
		{"POST", "/v1/other", "other"},
	} {
		for _, refusal := range []struct {
			name   string
			status int
			change func(r *http.Request)
		}{
			{"no key", 401, func(*http.Request) {}},
			{"another host", 421, func(r *http.Request) { r.Host = "evil.example" }},
			{"a key in the URL", 400, func(r *http.Request) { r.URL.RawQuery = "api_key=x" }},
			{"no key, another type", 401, func(r *http.Request) { r.Header.Set("Content-Type", "text/html") }},
			{"another method", 405, func(r *http.Request) { r.Method = "PURGE" }},
		} {
			r := httptest.NewRequest(rt.method, rt.path, strings.NewReader("{}"))
			r.Host = "gateway.example"
			refusal.change(r)
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if got := formOf(w.Body.String()); w.Code != refusal.status || got != rt.form {
				t.Errorf(
					"%s %s, %s: status %d in the format of %s, want %d %s",
					rt.method,
					rt.path,
					refusal.name,
					w.Code,
					got,
					refusal.status,
					rt.form,
				)
			}
		}
	}
	a.inFlight.stop()
	for path, form := range map[string]string{"/v1/chat/completions": "chat", "/api/orgs": "admin", "/v1/other": "other"} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("POST", path, nil))
		if got := formOf(w.Body.String()); w.Code != 503 || got != form {
			t.Errorf("%s while the gateway stops: status %d in the format of %s", path, w.Code, got)
		}
	}
}

func TestAnUnknownPathHasTheFormatOfItsAPI(t *testing.T) {
	a := withOther(t)
	for _, tt := range []struct {
		method, path string
		status       int
		form, allow  string
	}{
		{"GET", "/", 404, "chat", ""}, {"GET", "/v1", 404, "chat", ""}, {"POST", "/v2/chat/completions", 404, "chat", ""}, {"GET", "/apix", 404, "chat", ""},
		{"GET", "/api", 404, "admin", ""}, {"GET", "/api/", 404, "admin", ""}, {"GET", "/api/nothing", 404, "admin", ""},
		{"GET", "/api/sessions", 404, "agents", ""}, {"POST", "/api/sessions/x/y/z", 404, "agents", ""}, {"PUT", "/api/tools", 405, "agents", "GET, POST"}, {"GET", "/api/observability", 404, "agents", ""},
		{"GET", "/v1/chat/completions", 405, "chat", "POST"}, {"PUT", "/api/keys", 405, "admin", "GET, POST"}, {"DELETE", "/v1/other", 405, "other", "POST"},
		{"POST", "/v1/responses/resp_1", 405, "chat", "GET, DELETE"},
	} {
		r := httptest.NewRequest(tt.method, tt.path, nil)
		r.Host = "gateway.example"
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if got := formOf(w.Body.String()); w.Code != tt.status || got != tt.form || w.Header().Get("Allow") != tt.allow {
			t.Errorf(
				"%s %s: status %d, Allow %q, in the format of %s; want %d, %q, %s",
				tt.method,
				tt.path,
				w.Code,
				w.Header().Get("Allow"),
				got,
				tt.status,
				tt.allow,
				tt.form,
			)
		}
	}
}

func TestOtherMethodsOfPathsOutsideTheTableAreNamed(t *testing.T) {
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if w := respond(
			t,
			Options{},
			"POST",
			path,
			"",
		); w.Code != 405 || w.Header().Get("Allow") != "GET" ||
			formOf(w.Body.String()) != "chat" {
			t.Errorf("%s: status %d, Allow %q: %s", path, w.Code, w.Header().Get("Allow"), w.Body)
		}
	}
}

func TestAFrontAnswersInTheFormatOfTheRoute(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	front := Starting(l, allRoutes(), func() string { return "" }, slog.New(slog.DiscardHandler))
	defer front.Stop()
	for path, form := range map[string]string{"/v1/chat/completions": "chat", "/v1/models/m": "chat", "/api/orgs": "admin", "/api/none": "admin", "/none": "chat"} {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Post("http://"+l.Addr().String()+path, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if got := formOf(string(body)); resp.StatusCode != 503 || got != form {
			t.Errorf("%s: status %d in the format of %s, want %s", path, resp.StatusCode, got, form)
		}
	}
}
