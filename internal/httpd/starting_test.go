package httpd

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// While the gateway starts, health checks are answered and nothing else is done;
// afterwards the same address serves. // R18
func TestAFrontAnswersUntilTheGatewayServes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	url := "http://" + l.Addr().String()
	var why atomic.Value
	why.Store("")
	front := Starting(l, allRoutes(), func() string { return why.Load().(string) }, slog.New(slog.DiscardHandler))
	if status, body := get(t, url+"/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}
	if status, body := get(t, url+"/readyz"); status != 503 || body != "not ready: the gateway is starting\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	why.Store("its disk is full")
	if status, body := get(t, url+"/readyz"); status != 503 || body != "not ready: the gateway is starting: its disk is full\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	for _, path := range []string{"/v1/chat/completions", "/api/org", "/"} {
		resp, err := http.Post(url+path, "application/json", strings.NewReader(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 503 || !strings.Contains(string(body), `"code":"starting"`) || resp.Header.Get("Retry-After") != "5" || resp.Header.Get("Turnpike-Request-Id") == "" {
			t.Errorf("%s: %d %v %s", path, resp.StatusCode, resp.Header, body)
		}
	}

	idle, err := net.Dial("tcp", l.Addr().String()) // sends nothing, and holds up nobody
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	began := time.Now()
	front.Stop()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the front took %v to stop", took)
	}
	answered := make(chan int, 1)
	go func() {
		status, _ := get(t, url+"/later")
		answered <- status
	}()
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	if status := <-answered; status != http.StatusTeapot {
		t.Errorf("after the start: %d", status)
	}
	_ = server.Close()
	<-served
}
