package admin_test

import (
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// Whatever the file refuses, the management API refuses with the same words:
// for every key that an org, its runtime, its keys and its servers have, and
// for values of every shape, those included that ask for a feature that is not
// built. // C19 D18
func TestTheAPIRefusesWhatTheFileRefuses(t *testing.T) {
	NoLeaks(t)
	yaml := "operator_key: operator-key\n" + strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRun(t, yaml))
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"patched"}`, 201)
	d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"patched","url":"http://127.0.0.1:65009/mcp"}`, 201)

	refused, values := 0, ValuesOfAnOrg()
	sampled := soak.Sample(t, values, soak.Value(t, len(values)/6, len(values)/6, 0), SettingValue.Group)
	for _, v := range sampled {
		refused += v.Part.Compare(d, v.Name, v.Value)
	}
	if refused < len(sampled)/4 {
		t.Errorf("only %d of %d values were refused; does the test still walk the table?", refused, len(sampled))
	}
	patched := d.Do("GET", "/api/mcp-servers/patched", "owner-key", "", 200)
	if patched["name"] != "patched" {
		t.Errorf("the server that was patched is %v", patched)
	}
}

func TestAMemberThatAPatchGivesTwiceIsRefused(t *testing.T) { // C19
	NoLeaks(t)
	yaml := "operator_key: operator-key\n" + strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRun(t, yaml))
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"patched"}`, 201)
	d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"s","url":"http://127.0.0.1:65009/mcp"}`, 201)
	for path, c := range map[string]struct {
		key, body string
		status    int
	}{
		"/api/mcp-servers/s": {"owner-key", `{"trust":false,"trust":true}`, 422},
		"/api/org/runtime":   {"owner-key", `{"max_rounds":3,"max_rounds":4}`, 422},
		"/api/orgs/patched":  {"operator-key", `{"features":[],"features":["mcp_outbound"]}`, 400},
	} {
		got := d.Do("PATCH", path, c.key, c.body, c.status)["error"].(map[string]any)["message"].(string)
		if !strings.Contains(got, "is given twice") {
			t.Errorf("%s: %q", path, got)
		}
	}
}
