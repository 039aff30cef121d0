package sandbox_test

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

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// Code runs on another host. // K14
func TestRemote(t *testing.T) {
	var got struct {
		Language, Code, Session string
		Timeout                 float64
	}
	answer, status := `{"stdout":"out","stderr":"err","result":"3","exit":0,"extra":1}`, http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(data, &got); err != nil || r.Method != http.MethodPost || r.Header.Get("Authorization") != "Bearer k1" || r.URL.Path != "/run" {
			t.Errorf("%s %s %s, %v", r.Method, r.URL, data, err)
		}
		if got.Code == "hang" {
			<-r.Context().Done()
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.Remote}, URL: server.URL + "/run", Key: "k1", Client: http.DefaultTransport})
	defer server.CloseClientConnections()
	r := python("1+2")
	r.Timeout = 20 * time.Second
	o := run(t, m, r)
	if o.Stdout != "out" || o.Stderr != "err" || o.Result != "3" || o.Exit != 0 || o.Ended != "" || o.StateLost || o.Driver != sandbox.Remote {
		t.Errorf("%+v", o)
	}
	if got.Language != "python" || got.Code != "1+2" || got.Timeout <= 19 || got.Timeout > 20 || strings.Contains(got.Session, "acme") || got.Session == "" {
		t.Errorf("%+v", got)
	}
	session := got.Session
	if run(t, m, python("x")); got.Session != session {
		t.Errorf("%+v", got)
	}
	if run(t, m, js("acme", "s", "x")); got.Session == session || got.Language != "javascript" {
		t.Errorf("%+v", got)
	}
	answer = `{"error":"out of memory"}`
	if o := run(t, m, python("x")); o.Ended != "out of memory" {
		t.Errorf("%+v", o)
	}
	answer = `{"exit":1,"state_lost":true}`
	if o := run(t, m, python("x")); !o.StateLost || o.Exit != 1 {
		t.Errorf("%+v", o)
	}
	answer = `{"stdout":"` + strings.Repeat("x", 700<<10) + `END"}`
	if o := run(t, m, python("x")); len(o.Stdout) > 513<<10 || o.StdoutDropped != 188<<10+3 || !strings.HasSuffix(o.Stdout, "xEND") {
		t.Errorf("%d, %d", len(o.Stdout), o.StdoutDropped)
	}
	for _, c := range []struct {
		status int
		answer string
	}{{500, "broken"}, {200, "no JSON"}, {200, `{"stdout":"` + strings.Repeat("x", 3<<20) + `"}`}, {302, ""}} {
		status, answer = c.status, c.answer
		var unavailable *sandbox.UnavailableError
		if o, err := m.Run(t.Context(), python("x")); !errors.As(err, &unavailable) {
			t.Errorf("%d: %+v, %v", c.status, o, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := m.Run(ctx, python("hang")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestARemoteThatIsNotConfigured(t *testing.T) {
	for _, o := range []sandbox.Options{{}, {URL: "ftp://example.com", Client: http.DefaultTransport}, {URL: "http://127.0.0.1:1"}} {
		o.Drivers = []string{sandbox.Remote}
		m := newManager(t, o)
		var unavailable *sandbox.UnavailableError
		if _, err := m.Run(t.Context(), python("1")); !errors.As(err, &unavailable) || unavailable.Driver != sandbox.Remote {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
