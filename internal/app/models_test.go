package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listsModels answers with a list of models in place of a completion.
func listsModels(status int, body string) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, _ *http.Request, _ received) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// models returns the list as the gateway answers, as OWNER/ID@CREATED.
func (d documented) models() (all []string) {
	d.t.Helper()
	a := d.send("GET", "/v1/models", nil)
	if a.status != 200 || a.header.Get("Content-Type") != "application/json" {
		d.t.Fatalf("status %d: %.300s", a.status, a.body)
	}
	d.conforms("GET", "/v1/models", a)
	var list struct {
		Data []struct {
			ID      string
			Created int64
			OwnedBy string `json:"owned_by"`
		}
	}
	if err := json.Unmarshal(a.body, &list); err != nil {
		d.t.Fatal(err)
	}
	for _, m := range list.Data {
		all = append(all, fmt.Sprintf("%s/%s@%d", m.OwnedBy, m.ID, m.Created))
	}
	return all
}

func TestTheModelsAreThoseThatTheProviderListsAndTheGlobsMatch(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, listsModels(200, `{"data":[{"id":"g-2","created":7},{"id":"other"},{"id":"g-1/x"},{"id":"m","created":5}]}`))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	for range 3 {
		if diff := cmp.Diff([]string{"up/m@5", "up/g-1/x@0", "up/g-2@7"}, d.models()); diff != "" {
			t.Fatal(diff)
		}
	}
	asked := up.requests()
	if len(asked) != 1 || asked[0].path != "/v1/models" || asked[0].header.Get("Authorization") != "Bearer CANARY-upstream-key" {
		t.Errorf("the upstream was asked %+v", asked)
	}
	for id, want := range map[string]string{
		"m": `{"id":"m","object":"model","created":5,"owned_by":"up",`, "g-2": `{"id":"g-2","object":"model","created":7,"owned_by":"up",`,
		"g-1/x": `{"id":"g-1/x",`, "up/g-2": `{"id":"up/g-2","object":"model","created":7,`, "up/other": `{"id":"up/other",`,
	} {
		if a := d.send("GET", "/v1/models/"+id, nil); a.status != 200 || !strings.HasPrefix(string(a.body), want) {
			t.Errorf("%s: status %d: %s", id, a.status, a.body)
		} else {
			d.conforms("GET", "/v1/models/x", a)
		}
	}
	a := d.send("GET", "/v1/models/g-9", nil)
	if e := a.fault(t); a.status != 404 || *e.Error.Code != "model_not_found" {
		t.Errorf("a model that is not listed: %d %s", a.status, a.body)
	}
	d.conforms("GET", "/v1/models/x", a)
}

func TestAProviderThatDoesNotListItsModelsFailsNoList(t *testing.T) {
	noLeaks(t)
	for name, up := range map[string]string{
		"down":               "http://127.0.0.1:9",
		"without a list":     newUpstream(t, listsModels(404, `{"error":{"message":"no such path"}}`)).URL,
		"with the wrong key": newUpstream(t, listsModels(401, `{"error":{"message":"wrong key CANARY-upstream-key"}}`)).URL,
		"with a page":        newUpstream(t, listsModels(200, `<html>`)).URL,
		"without an end":     newUpstream(t, listsModels(200, `{"data":[{"id":"g-1"},`)).URL,
	} {
		t.Run(name, func(t *testing.T) {
			d := manage(MustRun(t, site{upstream: up}.yaml()))
			for range 3 {
				if diff := cmp.Diff([]string{"up/m@0"}, d.models()); diff != "" {
					t.Error(diff)
				}
			}
			if a := d.send("GET", "/v1/models/g-9", nil); a.status != 200 { // it may be there
				t.Errorf("status %d: %s", a.status, a.body)
			}
			log := d.log.String()
			if n := strings.Count(log, "model_list_unavailable"); n != 1 || !strings.Contains(log, "level=WARN msg=model_list_unavailable provider=up") {
				t.Errorf("%d lines in the log:\n%s", n, log)
			}
			if strings.Contains(log, "CANARY-upstream-key") {
				t.Errorf("the log has the key:\n%s", log)
			}
		})
	}
}

// P40: of what a provider lists, the gateway keeps a part.
func TestAProviderThatListsTooManyModels(t *testing.T) {
	noLeaks(t)
	var long strings.Builder
	long.WriteString(`{"data":[{"id":"g"}`)
	for i := range 100_000 {
		fmt.Fprintf(&long, `,{"id":"g-%06d","object":"model","created":1700000000,"owned_by":"x"}`, i)
	}
	long.WriteString(`]}`)
	up := newUpstream(t, listsModels(200, long.String()))
	d := manage(MustRun(t, site{upstream: up.URL}.yaml()))
	var list struct{ Data []struct{ ID string } }
	if err := json.Unmarshal(d.send("GET", "/v1/models", nil).body, &list); err != nil {
		t.Fatal(err)
	}
	if n := len(list.Data); n != 10_001 || list.Data[0].ID != "m" || list.Data[n-1].ID != "g-009999" {
		t.Errorf("%d models, from %q to %q", n, list.Data[0].ID, list.Data[n-1].ID)
	}
	if !strings.Contains(d.log.String(), "level=WARN msg=model_list_cut provider=up models=10000") {
		t.Error("the log does not say that the list is cut")
	}
}
