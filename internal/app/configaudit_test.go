package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// Changes of the configuration file leave audit rows with the old and the new value, whether
// they are applied by SIGHUP or by a restart. Credentials are shown as references.
func TestChangesOfTheConfigurationFileAreAudited(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	s := serve(t, Site{Upstream: up.URL, Runtime: "max_rounds: 3"}.Yaml())
	yaml := Site{Upstream: up.URL, Runtime: "max_rounds: 4"}.Yaml() + "  - {id: added, keys: [{name: k, key: \"env:UPSTREAM_KEY\"}]}\n"
	s.reload(t, yaml, readAgain)
	a := s.Send("GET", "/api/audit?kind=audit_log.management", nil, "Authorization", "Bearer owner-key")
	for _, want := range []string{`"key_id":"@operator"`, `"resource":"configuration"`, `"id":"orgs[o].runtime.max_rounds"`, `"before":{"value":"3"}`, `"after":{"value":"4"}`} {
		if a.Status != 200 || !strings.Contains(string(a.Body), want) {
			t.Errorf("%d, without %s: %s", a.Status, want, a.Body)
		}
	}
	_, out, _ := RunMain(t, "audit", "list", "--operator", "-c", s.file, "--data", strings.TrimSuffix(s.file, "/turnpike.yaml"))
	if !strings.Contains(out, `"id":"orgs[added]","action":"create","after":{`) || !strings.Contains(out, `"keys[k].key":"env:UPSTREAM_KEY"`) || strings.Count(out, `"max_rounds"`) > 2 {
		t.Errorf("%s", out)
	}
}

func TestARestartWithAnotherConfigurationIsAudited(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("hi")))
	data := t.TempDir()
	for _, rounds := range []int{3, 3, 5} {
		if err := MustRunIn(t, data, Site{Upstream: up.URL, Runtime: fmt.Sprintf("max_rounds: %d", rounds)}.Yaml(), Environment()).Stop(); err != nil {
			t.Fatal(err)
		}
	}
	_, out, _ := RunMain(t, "audit", "list", "--data", data)
	if strings.Count(out, `"configuration"`) != 1 || !strings.Contains(out, `"before":{"value":"3"},"after":{"value":"5"}`) {
		t.Errorf("%s", out)
	}
}

// The outbound policy changes with SIGHUP, also for a server whose connections are open.
func TestSIGHUPAppliesTheOutboundPolicy(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("look", `{}`)).Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	yaml := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	s := serve(t, yaml)
	if a := s.Post(GatedQuestion); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	strict := strings.Replace(yaml, "127.0.0.0/8", "10.255.0.0/16", 1)
	if strict == yaml {
		t.Fatal(yaml)
	}
	s.reload(t, strict, readAgain)
	if a := s.Post(GatedQuestion); a.Status != 403 || !strings.Contains(string(a.Body), "outbound_ssrf_blocked") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.reload(t, yaml, readAgain)
	if a := s.Post(GatedQuestion); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// Two active keys of an org cannot have one name: audit rows and lists would be ambiguous.
func TestNamesOfKeysAreUnique(t *testing.T) {
	NoLeaks(t)
	g := Manage(MustRun(t, Site{Upstream: NewUpstream(t, Script()).URL}.Yaml()))
	body := func(name string) string { return fmt.Sprintf(`{"name":%q}`, name) }
	g.Do("POST", "/api/keys", "owner-key", body("ci"), 201)
	other := g.Do("POST", "/api/keys", "owner-key", body("other"), 201)["id"].(string)
	g.Do("POST", "/api/keys", "owner-key", body("ci"), 409)
	g.Do("POST", "/api/keys", "owner-key", body("a"), 409) // a key of the file
	g.Do("PATCH", "/api/keys/"+other, "owner-key", body("ci"), 409)
	g.Do("PATCH", "/api/keys/"+other, "owner-key", body("other"), 200)
	g.Do("DELETE", "/api/keys/"+other, "owner-key", "", 200)
	g.Do("POST", "/api/keys", "owner-key", body("other"), 201) // its name is free again
}
