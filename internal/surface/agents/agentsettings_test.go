package agents_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A setting acts on the next run, also of a session that was begun before, until it is set otherwise; those of the
// agent and of the request come first. No key is accepted that nothing reads, but for the tools that are not there. // N12
func TestSettingsActOnTheNextRun(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"tools":[`) {
			Asks(Use("mcp__shop__look", fmt.Sprintf(`{"n":%d}`, got.Number))).Write(w)
			return
		}
		Says("Done.").Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	d.AsOwner("PUT", "/api/settings/AGENT_DEFAULT_MODEL", `{"value":"g-first"}`, 200)
	id := d.AsOwner("POST", "/api/agents", fmt.Sprintf(`{"name":"a","settings":{"max_tokens":77,"temperature":0.5,"reasoning_effort":"low"},"mcp_servers":[{"name":"shop","url":%q}]}`, tools.URL+"/mcp"), 201)["id"].(string)
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
	steps := func(more string) int {
		t.Helper()
		before := len(up.Requests())
		a := d.StreamAgent(id, fmt.Sprintf(`{"message":"go","session_id":%q%s}`, session, more))
		all := AgentFrames(t, a.Body)
		if last := all[len(all)-1]; last["status"] != "completed" {
			t.Errorf("the run ends with %v", last)
		}
		return len(up.Requests()) - before
	}
	for _, c := range []struct {
		set, more string
		want      int
	}{{"4", "", 4}, {"2", "", 2}, {"2", `,"max_steps":3`, 3}} {
		d.AsOwner("PUT", "/api/settings", `{"settings":{"AGENT_MAX_STEPS":`+c.set+`}}`, 200)
		if got := steps(c.more); got != c.want {
			t.Errorf("with %s and %q the run has %d steps, want %d", c.set, c.more, got, c.want)
		}
	}
	d.AsOwner("PATCH", "/api/agents/"+id, `{"settings":{"max_steps":5}}`, 200)
	if got := steps(""); got != 5 {
		t.Errorf("with max_steps of the agent the run has %d steps", got)
	}
	var asked struct {
		Model       string
		Temperature float64
		MaxTokens   int    `json:"max_tokens"`
		MaxOutput   int    `json:"max_completion_tokens"`
		Effort      string `json:"reasoning_effort"`
	}
	if err := json.Unmarshal(up.Requests()[0].Body, &asked); err != nil || asked.Model != "g-first" || asked.Temperature != 0.5 || asked.MaxTokens+asked.MaxOutput != 77 || asked.Effort != "low" {
		t.Errorf("%v: the model was asked with %+v", err, asked)
	}
	shown := []string{"AGENT_DEFAULT_MODEL", "AGENT_MAX_STEPS", "AGENT_TIMEOUT_SECONDS", "COMPACTION_MODEL"}
	for _, k := range agent.SettingKeys() {
		if k.Category != "tools" && !slices.Contains(shown, k.Key) {
			t.Errorf("no test shows what %s does", k.Key)
		}
	}
}

// COMPACTION_MODEL writes the summaries of sessions that become too long for max_context_tokens. // N12
func TestASettingNamesTheModelOfSummaries(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		Says(strings.Repeat("A long answer. ", 100)).Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	id := d.NewAgent(`,"settings":{"max_context_tokens":1000}`)
	if got := d.AsOwner("PUT", "/api/settings/COMPACTION_MODEL", `{"value":"nobody-has-it"}`, 400); got["param"] != "value" || !strings.Contains(got["error"].(string), "COMPACTION_MODEL") {
		t.Errorf("%v", got)
	}
	if got := d.AsOwner("PUT", "/api/settings", `{"settings":{"COMPACTION_MODEL":"nobody-has-it","AGENT_MAX_STEPS":3}}`, 400); got["param"] != "settings.COMPACTION_MODEL" {
		t.Errorf("%v", got)
	}
	d.AsOwner("PUT", "/api/settings/COMPACTION_MODEL", `{"value":"g-summary"}`, 200)
	session := d.AsOwner("POST", "/api/agents/"+id+"/sessions", "", 201)["id"].(string)
	for range 4 {
		d.StreamAgent(id, fmt.Sprintf(`{"message":%q,"session_id":%q}`, strings.Repeat("A long question. ", 60), session))
	}
	models := map[string]int{}
	for _, r := range up.Requests() {
		var asked struct{ Model string }
		if err := json.Unmarshal(r.Body, &asked); err != nil {
			t.Fatal(err)
		}
		models[asked.Model]++
	}
	if models["g-summary"] == 0 || models["m"] != 4 {
		t.Errorf("the models were asked %v", models)
	}
}

// What a setting must not be is refused with its name, and nothing is stored. // N12
func TestWrongSettingsAreRefused(t *testing.T) {
	d := agentsAt(t)
	before := d.AsOwner("GET", "/api/settings", "", 200)
	for _, k := range agent.SettingKeys() {
		wrong := []string{`{"a":1}`, `[]`, `true`, `"` + strings.Repeat("x", 1<<17) + `"`, `"a\u0000b"`}
		if k.Number {
			wrong = append(wrong, fmt.Sprint(k.Min-1), fmt.Sprint(k.Max+1), `"x"`, "1.5", `" 3"`, "1e1", `"03"`, "99999999999999999999")
		}
		for _, value := range wrong {
			for _, c := range []struct{ path, body, param string }{
				{"/api/settings/" + k.Key, `{"value":` + value + `}`, "value"},
				{"/api/settings", `{"settings":{"` + k.Key + `":` + value + `}}`, "settings." + k.Key},
			} {
				got := d.AsOwner("PUT", c.path, c.body, 400)
				if got["param"] != c.param || !strings.Contains(got["error"].(string), k.Key) || len(got["error"].(string)) > 500 {
					t.Errorf("%s %.60s: %.300v", c.path, c.body, got)
				}
			}
		}
	}
	for path, body := range map[string]string{
		"/api/settings/AGENT_MAX_STEPS": `{}`, "/api/settings/VISION_MODEL": `{"value":"m","more":1}`, "/api/settings/EXA_API_KEY": `{"settings":{"EXA_API_KEY":"x"}}`, "/api/settings": `{"AGENT_MAX_STEPS":3}`,
	} {
		d.AsOwner("PUT", path, body, 400)
	}
	d.AsOwner("POST", "/api/settings/reset-category", `{"category":"all"}`, 400)
	d.AsOwner("DELETE", "/api/settings/agent_max_steps", "", 404)
	if after := d.AsOwner("GET", "/api/settings", "", 200); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the settings were\n%v\nand are\n%v", before, after)
	}
}

// What is set over the API holds after a restart, whether the configuration file has the settings of the org, has none, or no
// longer has them. // N12
func TestSettingsSurviveARestart(t *testing.T) {
	NoLeaks(t)
	tools := NewMCP(t, map[string]Handler{"look": Echo}, "look")
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"tools":[`) {
			Asks(Use("mcp__shop__look", fmt.Sprintf(`{"n":%d}`, got.Number))).Write(w)
			return
		}
		Says("Done.").Write(w)
	})
	declared := Site{Upstream: up.URL, Runtime: "concurrency: 9"}.Yaml()
	free := strings.Replace(declared, "    runtime: {concurrency: 9}\n", "", 1)
	data := t.TempDir()
	var d Documented
	var shown, id string
	begin := func(yaml string) {
		t.Helper()
		if d.Gateway != nil {
			if err := d.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		d = Manage(MustRunIn(t, data, yaml, Environment()))
		if got := fmt.Sprint(d.AsOwner("GET", "/api/settings", "", 200)); shown != "" && got != shown {
			t.Errorf("the settings were\n%s\nand are\n%s", shown, got)
		}
	}
	steps := func(want int) {
		t.Helper()
		before := len(up.Requests())
		d.StreamAgent(id, `{"message":"go"}`)
		if got := len(up.Requests()) - before; got != want {
			t.Errorf("the run has %d steps, want %d", got, want)
		}
	}
	begin(declared)
	id = d.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"shop","url":%q}]`, tools.URL+"/mcp"))
	d.AsOwner("PATCH", "/api/org/runtime", `{"concurrency":8}`, 409)
	d.AsOwner("PUT", "/api/settings", `{"settings":{"AGENT_MAX_STEPS":3,"VISION_MODEL":"g-eye"}}`, 200)
	steps(3)
	shown = fmt.Sprint(d.AsOwner("GET", "/api/settings", "", 200))
	begin(declared)
	steps(3)
	begin(free)
	steps(3)
	d.AsOwner("PATCH", "/api/org/runtime", `{"concurrency":7}`, 200)
	d.AsOwner("PATCH", "/api/org/runtime", `{"agents":null}`, 422)
	steps(3)
	runtime, ok := d.AsOwner("GET", "/api/org", "", 200)["runtime"].(map[string]any)
	if _, has := runtime["agents"]; has || !ok || fmt.Sprint(runtime["concurrency"]) != "7" {
		t.Errorf("the org has %v", runtime)
	}
	begin(free)
	steps(3)
	begin(declared)
	d.AsOwner("PUT", "/api/settings/AGENT_MAX_STEPS", `{"value":2}`, 200)
	steps(2)
	d.AsOwner("DELETE", "/api/settings/AGENT_MAX_STEPS", "", 200)
	d.AsOwner("DELETE", "/api/settings/VISION_MODEL", "", 200)
	for _, one := range d.AsOwner("GET", "/api/settings", "", 200)["settings"].([]any) {
		if one := one.(map[string]any); one["is_set"] != false || one["updated_at"] != nil {
			t.Errorf("%v is set", one)
		}
	}
}

// Changes of settings and of the rest of the org at the same time all count. // N12
func TestChangesOfSettingsAndOfTheOrgAtTheSameTimeAllCount(t *testing.T) {
	NoLeaks(t)
	d := Manage(MustRun(t, strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.Yaml(), "    runtime: {}\n", "", 1)))
	var all sync.WaitGroup
	for _, c := range [][3]string{
		{"PUT", "/api/settings/AGENT_MAX_STEPS", `{"value":3}`},
		{"PUT", "/api/settings/VISION_MODEL", `{"value":"eye"}`},
		{"PUT", "/api/settings", `{"settings":{"AGENT_DEFAULT_MODEL":"m"}}`},
		{"PATCH", "/api/org/runtime", `{"concurrency":7}`},
		{"PATCH", "/api/org/runtime", `{"max_rounds":6}`},
	} {
		all.Go(func() {
			if a := d.Send(c[0], c[1], strings.NewReader(c[2])); a.Status != 200 {
				t.Errorf("%s %s: %d %s", c[0], c[1], a.Status, a.Body)
			}
		})
	}
	all.Wait()
	set := map[string]any{}
	for _, one := range d.AsOwner("GET", "/api/settings", "", 200)["settings"].([]any) {
		if one := one.(map[string]any); one["is_set"] == true {
			set[one["key"].(string)] = one["value"]
		}
	}
	runtime := d.AsOwner("GET", "/api/org", "", 200)["runtime"].(map[string]any)
	set["concurrency"], set["max_rounds"] = runtime["concurrency"], runtime["max_rounds"]
	if got := fmt.Sprint(set); got != "map[AGENT_DEFAULT_MODEL:m AGENT_MAX_STEPS:3 VISION_MODEL:eye concurrency:7 max_rounds:6]" {
		t.Error(got)
	}
}
