package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Changes of the configuration file leave audit rows with the old and the new value, whether
// they are applied by SIGHUP or by a restart. Credentials are shown as references.
func TestChangesOfTheConfigurationFileAreAudited(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("hi")))
	s := serve(t, site{upstream: up.URL, runtime: "max_rounds: 3"}.yaml())
	yaml := site{upstream: up.URL, runtime: "max_rounds: 4"}.yaml() + "  - {id: added, keys: [{name: k, key: \"env:UPSTREAM_KEY\"}]}\n"
	s.reload(t, yaml, readAgain)
	a := s.send("GET", "/api/audit?kind=audit_log.management", nil, "Authorization", "Bearer owner-key")
	for _, want := range []string{`"key_id":"@operator"`, `"resource":"configuration"`, `"id":"orgs[o].runtime.max_rounds"`, `"before":{"value":"3"}`, `"after":{"value":"4"}`} {
		if a.status != 200 || !strings.Contains(string(a.body), want) {
			t.Errorf("%d, without %s: %s", a.status, want, a.body)
		}
	}
	_, out, _ := runMain(t, "audit", "list", "--operator", "-c", s.file, "--data", strings.TrimSuffix(s.file, "/turnpike.yaml"))
	if !strings.Contains(out, `"id":"orgs[added]","action":"create","after":{`) || !strings.Contains(out, `"keys[k].key":"env:UPSTREAM_KEY"`) || strings.Count(out, `"max_rounds"`) > 2 {
		t.Errorf("%s", out)
	}
}

func TestARestartWithAnotherConfigurationIsAudited(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("hi")))
	data := t.TempDir()
	for _, rounds := range []int{3, 3, 5} {
		if err := mustRunIn(t, data, site{upstream: up.URL, runtime: fmt.Sprintf("max_rounds: %d", rounds)}.yaml(), environment()).stop(); err != nil {
			t.Fatal(err)
		}
	}
	_, out, _ := runMain(t, "audit", "list", "--data", data)
	if strings.Count(out, `"configuration"`) != 1 || !strings.Contains(out, `"before":{"value":"3"},"after":{"value":"5"}`) {
		t.Errorf("%s", out)
	}
}

// The outbound policy changes with SIGHUP, also for a server whose connections are open.
func TestSIGHUPAppliesTheOutboundPolicy(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"look", `{}`}).write(w)
	})
	tools := newMCP(t, map[string]handler{"look": echo}, "look")
	yaml := site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml()
	s := serve(t, yaml)
	if a := s.post(gatedQuestion); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	strict := strings.Replace(yaml, "127.0.0.0/8", "10.255.0.0/16", 1)
	if strict == yaml {
		t.Fatal(yaml)
	}
	s.reload(t, strict, readAgain)
	if a := s.post(gatedQuestion); a.status != 403 || !strings.Contains(string(a.body), "outbound_ssrf_blocked") {
		t.Errorf("%d %s", a.status, a.body)
	}
	s.reload(t, yaml, readAgain)
	if a := s.post(gatedQuestion); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// Two active keys of an org cannot have one name: audit rows and lists would be ambiguous.
func TestNamesOfKeysAreUnique(t *testing.T) {
	noLeaks(t)
	g := manage(MustRun(t, site{upstream: newUpstream(t, script()).URL}.yaml()))
	body := func(name string) string { return fmt.Sprintf(`{"name":%q}`, name) }
	g.do("POST", "/api/keys", "owner-key", body("ci"), 201)
	other := g.do("POST", "/api/keys", "owner-key", body("other"), 201)["id"].(string)
	g.do("POST", "/api/keys", "owner-key", body("ci"), 409)
	g.do("POST", "/api/keys", "owner-key", body("a"), 409) // a key of the file
	g.do("PATCH", "/api/keys/"+other, "owner-key", body("ci"), 409)
	g.do("PATCH", "/api/keys/"+other, "owner-key", body("other"), 200)
	g.do("DELETE", "/api/keys/"+other, "owner-key", "", 200)
	g.do("POST", "/api/keys", "owner-key", body("other"), 201) // its name is free again
}
