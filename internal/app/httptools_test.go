package app_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A reload adds and removes HTTP tools. // E11 C19
func TestAReloadChangesHTTPTools(t *testing.T) {
	shop := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "7") })
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("done").Write(w) })
	t.Setenv("TOKEN", "CANARY-token")
	with := HTTPTools(Site{Upstream: up.URL}, shop.URL)
	without, _, _ := strings.Cut(with, "    http_tools:")
	g := serve(t, without)
	offered := func() bool {
		before := len(up.Requests())
		if a := g.Post(Question); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return strings.Contains(string(up.Requests()[before].Body), `"get_order"`)
	}
	if offered() {
		t.Error("without tools in the file, one is offered")
	}
	if log := g.reload(t, with, readAgain); !strings.Contains(log, "key=orgs[o].http_tools[get_order] old=absent new=present") {
		t.Errorf("the log: %s", log)
	}
	if !offered() {
		t.Error("the new tool is not offered")
	}
	changed := strings.Replace(with, "name: get_order\n", "name: get_order\n        enabled: false\n", 1)
	g.reload(t, changed, readAgain)
	if offered() {
		t.Error("a disabled tool is offered")
	}
	g.reload(t, without, readAgain)
	if offered() {
		t.Error("a removed tool is offered")
	}
	if strings.Contains(g.Log.String(), "CANARY") {
		t.Error("the log has a secret")
	}
}
