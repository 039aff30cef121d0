package surface

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/spool"
)

// Each prompt of a relayed completion is answered by itself, and reserves what an answer may cost. // P57
func TestEachPromptReserves(t *testing.T) {
	files, err := spool.New(t.TempDir(), 1<<20, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]int64{
		`{"prompt":"a","max_tokens":10}`:                                         10,
		`{"max_tokens":10,"prompt":["a","b","c"]}`:                               30,
		`{"prompt":["a","b"],"n":2,"max_tokens":10}`:                             40,
		`{"prompt":[1,2,3],"max_tokens":10}`:                                     10,
		`{"prompt":[[1,2],[3]],"max_tokens":10}`:                                 20,
		`{"prompt":["` + strings.Repeat("x", 20<<10) + `","b"],"max_tokens":10}`: 20,
		`{"prompt":"a","prompt":["a","b"],"max_tokens":10}`:                      20,
		`{"prompt":[],"max_tokens":10}`:                                          10,
	} {
		spooled := files.Body("o", nil)
		sent, err := readJSON(strings.NewReader(body), spooled)
		if err != nil {
			t.Fatal(err)
		}
		if got := maxTokens(sent.members, sent.prompts); got != want {
			t.Errorf("%.60s: %d tokens, want %d", body, got, want)
		}
		if err := spooled.Close(); err != nil {
			t.Error(err)
		}
	}
}
