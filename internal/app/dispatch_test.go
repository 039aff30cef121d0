package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A reload sets and removes the URL. // E12 C19
func TestAReloadChangesTheToolDispatchURL(t *testing.T) {
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `"sent"`) })
	up := NewUpstream(t, Calling(Use("status", `{"order":7}`)))
	without := Site{Upstream: up.URL, Feature: "none"}.Yaml()
	g := serve(t, without)
	executes := func() bool {
		before, _ := shop.All()
		if a := g.Post(Functions("", "status")); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		after, _ := shop.All()
		return len(after) > len(before)
	}
	if executes() {
		t.Error("without a URL, the function is executed")
	}
	g.reload(t, Dispatching(Site{Upstream: up.URL, Feature: "none"}, shop.URL), readAgain)
	if !executes() {
		t.Error("with the URL, the function is not executed")
	}
	g.reload(t, without, readAgain)
	if executes() {
		t.Error("after the URL was removed, the function is executed")
	}
}

// A gateway that is killed while the URL executes a call does not repeat it: the model is told that it may have been
// carried out. Functions that were not called yet are executed by the next process. // E12 R4
func TestADispatchedCallIsNotRepeatedAfterAKill(t *testing.T) {
	reached, release := make(chan struct{}, 8), make(chan struct{})
	shop := NewEndpoint(t, nil)
	shop.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		shop.Mu.Lock()
		shop.Got = append(shop.Got, string(body))
		shop.Mu.Unlock()
		if strings.Contains(string(body), "refund") {
			reached <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `"sent"`)
	})
	t.Cleanup(func() { close(release) })
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		switch n := len(got.Results(t)); n {
		case 0:
			Asks(Use("refund", `{"order":7}`)).Write(w)
		case 1:
			Asks(Use("status", `{"order":7}`)).Write(w)
		default:
			Says("done").Write(w)
		}
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "turnpike.yaml")
	if err := os.WriteFile(file, []byte(Dispatching(Site{Upstream: up.URL, Feature: "none"}, shop.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() (*Gateway, *exec.Cmd) {
		cmd := exec.Command(Program(t), "serve", "--config", file)
		cmd.Env = append(os.Environ(), "UPSTREAM_KEY=k", "TURNPIKE_DATA="+dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		g := &Gateway{T: t, URL: listensOn(t, out), Client: &http.Client{Transport: &http.Transport{}}}
		t.Cleanup(g.Client.CloseIdleConnections)
		return g, cmd
	}
	first, killed := start()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		req := first.Request(context.Background(), "POST", "/v1/chat/completions", strings.NewReader(Functions("", "refund", "status")), "Idempotency-Key", "one")
		if resp, err := first.Client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	Wait(t, reached, "the call")
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait()
	Wait(t, gone, "the client to be left")
	second, _ := start()
	var a Answer
	ComesTrue(t, "the run is answered", func() bool {
		a = second.Post(Functions("", "refund", "status"), "Idempotency-Key", "one")
		return a.Status == 200
	})
	if !strings.Contains(string(a.Body), "done") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	all := up.Requests()
	told := all[len(all)-1].Results(t)
	if len(told) != 2 || !strings.HasPrefix(told[0], "outcome_unknown: ") || told[1] != "sent" {
		t.Errorf("the model is told %q", told)
	}
	if got, _ := shop.All(); fmt.Sprint(got) != `[{"name":"refund","arguments":{"order":7}} {"name":"status","arguments":{"order":7}}]` {
		t.Errorf("the endpoint got %v", got)
	}
}
