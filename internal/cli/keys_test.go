package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// The commands read all pages of the keys.
func TestKeysCommandsReadAllPages(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := map[string]string{"": `"1.a+b"`, "1.a+b": `"2.c"`, "2.c": "null"}[r.FormValue("after")]
		fmt.Fprintf(w, `{"data":[{"id":"key_%s","name":"x","role":"member"}],"next":%s}`, r.FormValue("after"), next)
	}))
	defer server.Close()
	env := map[string]string{"TURNPIKE_KEY": "k", "TURNPIKE_URL": server.URL}
	for line, want := range map[string][]string{
		"keys list":  {"key_ ", "key_1.a+b ", "key_2.c "},
		"keys check": {"the key key_ has the same name", "the key key_1.a+b has the same name", "2 findings in 3 active keys"},
	} {
		var out bytes.Buffer
		lookup := func(name string) (string, bool) { v, ok := env[name]; return v, ok }
		Main(t.Context(), Process{Args: strings.Fields(line), Env: lookup, Stdout: &out, Stderr: &out})
		for _, part := range want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s prints\n%s\nwithout %q", line, out.String(), part)
			}
		}
	}
}
