package app_test

import (
	"encoding/json"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// The windows of the configuration come before the built-in ones and those that providers list, and a
// reload changes them.
func TestTheModelsHaveTheWindowsOfTheConfiguration(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, ListsModels(200, `{"data":[{"id":"g-1","context_length":200000},{"id":"g-2","context_length":8192}]}`))
	yaml := Site{Upstream: up.URL}.Yaml()
	with := func(models string) string { return "models: [" + models + "]\n" + yaml }
	s := serve(t, with("{model: m, context_window: 400000, max_input_tokens: 272000}, {model: 'g-*', provider: up, context_window: 16384}"))
	type window struct {
		Window int64 `json:"context_window"`
		Input  int64 `json:"max_input_tokens"`
	}
	check := func(name string, want window) {
		t.Helper()
		var one struct {
			Turnpike struct{ Targets []window }
		}
		body := s.Send("GET", "/v1/models/"+name, nil).Body
		if err := json.Unmarshal(body, &one); err != nil || len(one.Turnpike.Targets) != 1 || one.Turnpike.Targets[0] != want {
			t.Errorf("%s: %s, want %+v", name, body, want)
		}
	}
	check("m", window{400_000, 272_000})
	check("g-2", window{16_384, 0})
	s.reload(t, with("{model: 'g-[1]', max_input_tokens: 4096}"), readAgain)
	check("m", window{})
	check("g-1", window{4096, 0})
	check("g-2", window{8192, 0}) // as the provider lists it
}
