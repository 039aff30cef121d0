package chat_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestTheModelsAreThoseThatTheProviderListsAndTheGlobsMatch(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, ListsModels(200, `{"data":[{"id":"g-2","created":7},{"id":"other"},{"id":"g-1/x"},{"id":"m","created":5}]}`))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	for range 3 {
		if diff := cmp.Diff([]string{"up/m@5", "up/g-1/x@0", "up/g-2@7"}, modelsOf(d)); diff != "" {
			t.Fatal(diff)
		}
	}
	asked := up.Requests()
	if len(asked) != 1 || asked[0].Path != "/v1/models" || asked[0].Header.Get("Authorization") != "Bearer CANARY-upstream-key" {
		t.Errorf("the upstream was asked %+v", asked)
	}
	for id, want := range map[string]string{
		"m": `{"id":"m","object":"model","created":5,"owned_by":"up",`, "g-2": `{"id":"g-2","object":"model","created":7,"owned_by":"up",`,
		"g-1/x": `{"id":"g-1/x",`, "up/g-2": `{"id":"up/g-2","object":"model","created":7,`, "up/other": `{"id":"up/other",`,
	} {
		if a := d.Send("GET", "/v1/models/"+id, nil); a.Status != 200 || !strings.HasPrefix(string(a.Body), want) {
			t.Errorf("%s: status %d: %s", id, a.Status, a.Body)
		} else {
			d.Conforms("GET", "/v1/models/x", a)
		}
	}
	a := d.Send("GET", "/v1/models/g-9", nil)
	if e := a.Fault(t); a.Status != 404 || *e.Error.Code != "model_not_found" {
		t.Errorf("a model that is not listed: %d %s", a.Status, a.Body)
	}
	d.Conforms("GET", "/v1/models/x", a)
}

func TestAProviderThatDoesNotListItsModelsFailsNoList(t *testing.T) {
	NoLeaks(t)
	for name, up := range map[string]string{
		"down":               "http://127.0.0.1:9",
		"without a list":     NewUpstream(t, ListsModels(404, `{"error":{"message":"no such path"}}`)).URL,
		"with the wrong key": NewUpstream(t, ListsModels(401, `{"error":{"message":"wrong key CANARY-upstream-key"}}`)).URL,
		"with a page":        NewUpstream(t, ListsModels(200, `<html>`)).URL,
		"without an end":     NewUpstream(t, ListsModels(200, `{"data":[{"id":"g-1"},`)).URL,
	} {
		t.Run(name, func(t *testing.T) {
			d := Manage(MustRun(t, Site{Upstream: up}.Yaml()))
			for range 3 {
				if diff := cmp.Diff([]string{"up/m@0"}, modelsOf(d)); diff != "" {
					t.Error(diff)
				}
			}
			if a := d.Send("GET", "/v1/models/g-9", nil); a.Status != 200 { // it may be there
				t.Errorf("status %d: %s", a.Status, a.Body)
			}
			log := d.Log.String()
			if n := strings.Count(log, "model_list_unavailable"); n != 1 || !strings.Contains(log, "level=WARN msg=model_list_unavailable provider=up") {
				t.Errorf("%d lines in the log:\n%s", n, log)
			}
			if strings.Contains(log, "CANARY-upstream-key") {
				t.Errorf("the log has the key:\n%s", log)
			}
		})
	}
}

// Of what a provider lists, the gateway keeps a part. // P40
func TestAProviderThatListsTooManyModels(t *testing.T) {
	NoLeaks(t)
	var long strings.Builder
	long.WriteString(`{"data":[{"id":"g"}`)
	for i := range 100_000 {
		fmt.Fprintf(&long, `,{"id":"g-%06d","object":"model","created":1700000000,"owned_by":"x"}`, i)
	}
	long.WriteString(`]}`)
	up := NewUpstream(t, ListsModels(200, long.String()))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.Yaml()))
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(d.Send("GET", "/v1/models", nil).Body, &list); err != nil {
		t.Fatal(err)
	}
	if n := len(list.Data); n != 10_001 || list.Data[0].ID != "m" || list.Data[n-1].ID != "g-009999" {
		t.Errorf("%d models, from %q to %q", n, list.Data[0].ID, list.Data[n-1].ID)
	}
	if !strings.Contains(d.Log.String(), "level=WARN msg=model_list_cut provider=up models=10000") {
		t.Error("the log does not say that the list is cut")
	}
}

// Beside each name is what the gateway knows of it, and nothing that it would have to guess. // P63
func TestTheModelsSayWhatTheyCanDoAndCost(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, ListsModels(200, `{"data":[{"id":"g-1","context_length":200000,"supported_parameters":["tools","seed"]},{"id":"g-2","max_model_len":8192,"capabilities":{"function_calling":false}},{"id":"g-3","context_length":-1,"capabilities":{}}]}`))
	card := filepath.Join(t.TempDir(), "rates.yaml")
	rows := `
- {model: m, provider: up, from: 2026-01-01, input: 1.25, cached_input: 0.125, output: 10, above: {tokens: 1000, input: 2.5, output: 15}, flex: {input: 0.6, output: 5}}
- {model: g-2, provider: up, from: 2026-01-01, gpu_second: 0.0004}
- {model: g-3, provider: up, from: 2026-01-01, input: 0, output: 0}
- {model: g-3, provider: up, from: 2999-01-01, input: 5, output: 5}
`
	if err := os.WriteFile(card, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "rates: " + card + "\n" + Site{Upstream: up.URL}.Yaml()
	text = strings.Replace(text, "outbound:", fmt.Sprintf("  - {name: far, kind: anthropic, base_url: %q, api_key: env:UPSTREAM_KEY, models: [claude-x, o3-mini]}\nroutes:\n"+
		"  - {model: fast, targets: [{provider: far, model: claude-x}, {provider: up, model: m}]}\noutbound:", up.URL), 1)
	text = strings.Replace(text, "role: member}", "role: member, models: [fast]}", 1)
	d := Manage(MustRun(t, text))
	const (
		chat  = `["/v1/chat/completions","/v1/responses"]`
		all   = `["/v1/chat/completions","/v1/responses","/v1/completions","/v1/embeddings","/v1/moderations","/v1/images/generations","/v1/images/edits","/v1/audio/speech","/v1/audio/transcriptions","/v1/audio/translations"]`
		price = `{"from":"2026-01-01","input":1.25,"cached_input":0.125,"cache_write":1.25,"cache_write_1h":1.25,"output":10,` +
			`"above":{"tokens":1000,"input":2.5,"cached_input":0.25,"cache_write":2.5,"cache_write_1h":2.5,"output":15},` +
			`"flex":{"input":0.6,"cached_input":0.06,"cache_write":0.6,"cache_write_1h":0.6,"output":5}}`
		upM  = `{"provider":"up","model":"m","endpoints":` + all + `,"price":` + price + `}`
		free = `"input":0,"cached_input":0,"cache_write":0,"cache_write_1h":0,"output":0`
	)
	want := map[string]string{
		"m":    `{"targets":[` + upM + `],"allowed_with_cost_limit":true}`,
		"fast": `{"targets":[{"provider":"far","model":"claude-x","endpoints":` + chat + `},` + upM + `],"allowed_with_cost_limit":true}`,
		"g-1":  `{"targets":[{"provider":"up","model":"g-1","endpoints":` + all + `,"context_window":200000,"tools":true}],"allowed_with_cost_limit":false}`,
		"g-2": `{"targets":[{"provider":"up","model":"g-2","endpoints":` + all + `,"context_window":8192,"tools":false,"price":{"from":"2026-01-01",` + free + `,"gpu_second":0.0004}}],` +
			`"allowed_with_cost_limit":true}`,
		"g-3":      `{"targets":[{"provider":"up","model":"g-3","endpoints":` + all + `,"price":{"from":"2026-01-01",` + free + `}}],"allowed_with_cost_limit":true}`,
		"o3-mini":  `{"targets":[{"provider":"far","model":"o3-mini","endpoints":` + chat + `,"context_window":200000}],"allowed_with_cost_limit":false}`, // not in the list of the provider
		"claude-x": `{"targets":[{"provider":"far","model":"claude-x","endpoints":` + chat + `}],"allowed_with_cost_limit":false}`,
	}
	a := d.Send("GET", "/v1/models", nil)
	d.Conforms("GET", "/v1/models", a)
	var list struct {
		Data []struct {
			ID       string
			Turnpike json.RawMessage
		}
	}
	if err := json.Unmarshal(a.Body, &list); err != nil || len(list.Data) != len(want) {
		t.Fatalf("%v %s", err, a.Body)
	}
	for _, m := range list.Data {
		if diff := cmp.Diff(want[m.ID], string(m.Turnpike)); diff != "" {
			t.Errorf("%s: %s", m.ID, diff)
		}
		one := d.Send("GET", "/v1/models/"+m.ID, nil)
		d.Conforms("GET", "/v1/models/x", one)
		if !strings.Contains(string(one.Body), `"turnpike":`+want[m.ID]) {
			t.Errorf("%s alone: %s", m.ID, one.Body)
		}
	}
	if a := d.Send("GET", "/v1/models", nil, "Authorization", "Bearer member-key"); strings.Count(string(a.Body), `"id":`) != 1 || !strings.Contains(string(a.Body), `"turnpike":`+want["fast"]) {
		t.Errorf("a key with models gets %s", a.Body)
	}
	if a := d.Send("GET", "/v1/models/m", nil, "Authorization", "Bearer member-key"); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// modelsOf returns the list as the gateway answers, as OWNER/ID@CREATED.
func modelsOf(d Documented) (all []string) {
	d.T.Helper()
	a := d.Send("GET", "/v1/models", nil)
	if a.Status != 200 || a.Header.Get("Content-Type") != "application/json" {
		d.T.Fatalf("status %d: %.300s", a.Status, a.Body)
	}
	d.Conforms("GET", "/v1/models", a)
	var list struct {
		Data []struct {
			ID      string
			Created int64
			OwnedBy string `json:"owned_by"`
		}
	}
	if err := json.Unmarshal(a.Body, &list); err != nil {
		d.T.Fatal(err)
	}
	for _, m := range list.Data {
		all = append(all, fmt.Sprintf("%s/%s@%d", m.OwnedBy, m.ID, m.Created))
	}
	return all
}
