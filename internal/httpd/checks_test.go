package httpd

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

// noKeys is a directory without keys.
type noKeys struct{}

func (noKeys) Authenticate(context.Context, string) (caller.Caller, bool) {
	return caller.Caller{}, false
}
func (noKeys) IsOperator(string) bool     { return false }
func (noKeys) Gone(string, string) string { return "" }

// respond returns the response to a request with the given header fields (name,
// value, …). No key is known, so a request that passes the checks gets 401.
func respond(t *testing.T, o Options, method, target, body string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	o.Directory, o.Health = noKeys{}, func() error { return nil }
	o.Routes, o.Document = allRoutes(), admin.ServeDocument
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	a.SetReady(true)
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		if fields[i] == "Host" {
			r.Host = fields[i+1]
		} else {
			r.Header.Set(fields[i], fields[i+1])
		}
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w
}

// A web page whose name was rebound to this machine is refused.
func TestOnlyTheGatewaysOwnHostNamesAreAccepted(t *testing.T) {
	local, public, named := Options{Loopback: true}, Options{}, Options{Hosts: []string{"gw.example.com"}}
	both := Options{Loopback: true, Hosts: []string{"gw.example.com"}}
	for _, tt := range []struct {
		host    string
		o       Options
		refused bool
	}{
		{"127.0.0.1:8080", local, false}, {"127.0.0.1", local, false}, {"[::1]:8080", local, false}, {"[::1]", local, false},
		{"localhost", local, false}, {"LocalHost:9", local, false}, {"app.localhost:9", local, false},
		{"host.docker.internal:8080", local, false}, {"host.containers.internal", local, false}, {"", local, false},
		{"192.168.1.7", local, false}, // an address cannot be rebound
		{"evil.example", local, true}, {"evil.example:8080", local, true}, {"localhost.evil.example", local, true},
		{"evil-localhost", local, true}, {"127.0.0.1.nip.io", local, true}, {"localhost.", local, true},
		{"0x7f.1", local, true}, {"[::1", local, true}, {"evil@localhost", local, true}, {"gw.example.com", local, true},
		{"gw.example.com", both, false}, {"GW.example.com:443", both, false}, {"evil.example", both, true}, {"localhost", both, false},
		{"anything.example", public, false},
		{"gw.example.com", named, false}, {"10.0.0.1", named, false}, {"anything.example", named, true}, {"x.gw.example.com", named, true},
	} {
		w := respond(t, tt.o, "GET", "/v1/models", "", "Host", tt.host)
		if got := w.Code == 421; got != tt.refused || got && !strings.Contains(w.Body.String(), "public_hosts") || !got && w.Code != 401 {
			t.Errorf("%q with %+v: status %d, %s", tt.host, tt.o, w.Code, w.Body)
		}
		for _, path := range []string{"/healthz", "/readyz"} {
			if w := respond(t, tt.o, "GET", path, "", "Host", tt.host); w.Code != 200 {
				t.Errorf("%s of %q: status %d", path, tt.host, w.Code)
			}
		}
	}
}

func TestCrossOriginRequestsCannotChangeAnything(t *testing.T) {
	allowed := Options{Origins: []string{"https://app.example.com", "app://notes"}}
	for _, tt := range []struct {
		name    string
		o       Options
		method  string
		fields  []string
		refused bool
	}{
		{"no browser", Options{}, "POST", nil, false},
		{"the gateway's own page", Options{}, "POST", []string{"Origin", "http://example.com", "Sec-Fetch-Site", "same-origin"}, false},
		{"its own page, in an older browser", Options{}, "POST", []string{"Origin", "http://example.com"}, false},
		{"another site", Options{}, "POST", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, true},
		{"another site, in an older browser", Options{}, "POST", []string{"Origin", "https://evil.example"}, true},
		{"another port of the machine", Options{}, "POST", []string{"Origin", "http://example.com:3000", "Sec-Fetch-Site", "same-site"}, true},
		{"a file or a sandbox", Options{}, "POST", []string{"Origin", "null"}, true},
		{"reading for another site", Options{}, "GET", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, false},
		{"deleting for another site", Options{}, "DELETE", []string{"Origin", "https://evil.example"}, true},
		{"putting for another site", Options{}, "PUT", []string{"Origin", "https://evil.example"}, true},
		{"a site that may", allowed, "POST", []string{"Origin", "https://app.example.com", "Sec-Fetch-Site", "cross-site"}, false},
		{"a program that may", allowed, "POST", []string{"Origin", "app://notes"}, false},
		{"one that may not", allowed, "POST", []string{"Origin", "https://app.example.com.evil.example", "Sec-Fetch-Site", "cross-site"}, true},
	} {
		for _, path := range []string{"/v1/chat/completions", "/api/keys"} {
			w := respond(t, tt.o, tt.method, path, "", append(tt.fields, "Host", "example.com")...)
			if got := w.Code == 403; got != tt.refused || got && !strings.Contains(w.Body.String(), "allowed_origins") {
				t.Errorf("%s, %s %s: status %d, %s", tt.name, tt.method, path, w.Code, w.Body)
			}
			if w.Header().Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: %v", tt.name, w.Header())
			}
		}
	}
	if _, err := New(Options{Routes: allRoutes(), Document: admin.ServeDocument, Origins: []string{"example.com"}}); err == nil {
		t.Error("an origin without a scheme is accepted")
	}
}

func TestAKeyInTheURLIsRefused(t *testing.T) {
	for _, query := range []string{"key=CANARY", "api_key=CANARY", "API-Key=CANARY", "apikey=CANARY", "access_token=CANARY", "a=1&token=CANARY", "Authorization=Bearer+CANARY"} {
		w := respond(t, Options{}, "POST", "/v1/chat/completions?"+query, "{}")
		if w.Code != 400 || !strings.Contains(w.Body.String(), "key_in_url") ||
			!strings.Contains(w.Body.String(), "Authorization: Bearer") ||
			strings.Contains(w.Body.String(), "CANARY") {
			t.Errorf("%s: status %d, %s", query, w.Code, w.Body)
		}
	}
	for _, query := range []string{"", "api-version=2024-10-21", "keys=1", "limit=20"} {
		if w := respond(t, Options{}, "POST", "/v1/chat/completions?"+query, "{}"); w.Code != 401 {
			t.Errorf("%s: status %d, %s", query, w.Code, w.Body)
		}
	}
}

// What net/url leaves out of a query string must not change what is asked for.
func TestAQueryThatCannotBeReadIsRefused(t *testing.T) {
	for _, query := range []string{"limit=5;state=lost", "%zz", "limit=%2", "limit=5&a=1;b"} {
		if w := respond(t, Options{}, "GET", "/v1/runs?"+query, ""); w.Code != 400 || !strings.Contains(w.Body.String(), "invalid_query") {
			t.Errorf("%s: status %d, %s", query, w.Code, w.Body)
		}
	}
	if w := respond(t, Options{}, "GET", "/v1/runs?a=1;key=CANARY&api_key=CANARY", ""); !strings.Contains(w.Body.String(), "key_in_url") {
		t.Errorf("a key beside it: %s", w.Body)
	}
}

// A route takes JSON, and any type, or forms, where it says so. An unknown key is refused first.
func TestContentTypes(t *testing.T) {
	route := surface.Group{Errors: surface.ManagementErrors(), MaxBody: 10}
	forms, anyType := route, route
	forms.Forms, anyType.AnyType = true, true
	ok := func(w http.ResponseWriter, _ *http.Request, _ caller.Caller) error {
		return surface.WriteJSON(w, 200, 1)
	}
	a, err := New(Options{
		Directory: knownKeys{
			"KEY": callerOf("o", org.Rate{}, org.Rate{}),
		},
		Health:   func() error { return nil },
		Document: admin.ServeDocument,
		Routes: []surface.Route{
			route.Route("/", nil),
			route.Route("POST /json", ok),
			forms.Route("POST /form", ok),
			anyType.Route("PUT /any", ok),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	const page, form = true, "multipart/form-data; boundary=x"
	for _, tt := range []struct {
		route string
		kind  string // Content-Type; "" = none
		page  bool   // sent by a browser
		want  int
	}{
		{"POST /json", "application/json", false, 200}, {"POST /json", "application/json", page, 200}, {"POST /json", "application/json; charset=utf-8", false, 200},
		{"POST /json", "APPLICATION/JSON", false, 200}, {"POST /json", "application/vnd.api+json", false, 200}, {"POST /json", "", false, 200},
		{"POST /json", "application/x-www-form-urlencoded", false, 200}, // curl -d
		{"POST /json", "application/x-www-form-urlencoded", page, 415},
		{"POST /json", "text/plain", false, 415}, {"POST /json", "text/plain;charset=UTF-8", page, 415}, {"POST /json", form, page, 415},
		{"POST /json", "text/xml", false, 415}, {"POST /json", "application/octet-stream", false, 415}, {"POST /json", "json", false, 415},
		{"POST /json", "text/x+json", false, 415}, {"POST /json", "/", false, 415},
		{"POST /form", form, page, 200}, {"POST /form", "text/plain", false, 415},
		{"PUT /any", "text/csv", false, 200}, {"PUT /any", "image/png", page, 200}, {"PUT /any", form, false, 200}, {"PUT /any", "no type", false, 200}, {"PUT /any", "", false, 200},
	} {
		ask := func(body io.Reader, fields ...string) int {
			method, path, _ := strings.Cut(tt.route, " ")
			r := httptest.NewRequest(method, path, body)
			r.Header.Set("Content-Type", tt.kind)
			if tt.page {
				r.Header.Set("Origin", "http://example.com")
			}
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			return w.Code
		}
		if got := ask(strings.NewReader("{}"), "Authorization", "Bearer KEY"); got != tt.want {
			t.Errorf("%s with %q: status %d, want %d", tt.route, tt.kind, got, tt.want)
		}
		if got := ask(strings.NewReader("{}")); got != 401 {
			t.Errorf("%s with %q and without a key: status %d", tt.route, tt.kind, got)
		}
		if got := ask(nil, "Authorization", "Bearer KEY"); got != 200 {
			t.Errorf("%s with %q and without a body: status %d", tt.route, tt.kind, got)
		}
		if got := ask(strings.NewReader("{}"), "Authorization", "Bearer KEY", "Content-Encoding", "gzip"); got != 415 {
			t.Errorf("%s with %q and a compressed body: status %d", tt.route, tt.kind, got)
		}
	}
}

// A refusal has the error format of the requested API, and the security headers.
func TestARefusalHasTheFormatOfItsAPI(t *testing.T) {
	for path, want := range map[string]string{"/v1/models": `"type":"invalid_request_error"`, "/api/org": `{"error":{"code":"host_not_allowed"`} {
		w := respond(t, Options{Loopback: true}, "GET", path, "", "Host", "evil.example")
		if !strings.Contains(w.Body.String(), want) || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v, %s", path, w.Header(), w.Body)
		}
	}
	w := respond(t, Options{}, http.MethodPost, "/api/keys", "<", "Content-Type", "text/xml")
	if w.Header().Get("Connection") != "close" {
		t.Error("the server waits for a body that it does not read")
	}
}
