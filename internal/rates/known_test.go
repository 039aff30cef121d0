package rates

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/rates/known"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) {
	turnpiketest.UpdateFlag()
	os.Exit(m.Run())
}

// The library has the same prices. go test ./internal/rates -update writes them.
func TestTheLibraryKnowsTheSamePrices(t *testing.T) { // B18
	rows := card(t).Under.Rows
	if turnpiketest.Updating() {
		var out bytes.Buffer
		out.WriteString("[")
		for i, row := range rows {
			if i > 0 {
				out.WriteString(",")
			}
			out.WriteString("\n")
			out.Write(stated(t, row))
		}
		out.WriteString("\n]\n")
		if err := os.WriteFile("known/builtin.json", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := known.Card()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rows, got.Rows); diff != "" {
		t.Errorf("internal/rates/known/builtin.json differs from builtin.yaml; write it with -update: %s", diff)
	}
}

// stated returns the JSON of a row without what it does not say.
func stated(t *testing.T, row money.Row) []byte {
	t.Helper()
	text, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		t.Fatal(err)
	}
	clean(members)
	text, err = json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func clean(members map[string]any) {
	for name, value := range members {
		if inner, ok := value.(map[string]any); ok {
			if clean(inner); len(inner) == 0 {
				delete(members, name)
			}
		}
		if value == nil || value == "" || value == json.Number("0") && (name == "AboveTokens" || name == "GPUSecond") {
			delete(members, name)
		}
	}
}
