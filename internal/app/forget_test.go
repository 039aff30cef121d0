package app_test

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/id"
)

// With "store": false nothing that the client, the model or a tool said is written to the data
// directory, not even for a moment. What says that there was a run stays: audit rows, and the
// run without its texts. // G17
func TestNothingOfAResponseThatIsNotStoredIsOnDisk(t *testing.T) {
	noLeaks(t)
	text := id.New("SECRET-")
	asked, said := asks(call{"echo", `{"n":"` + text + `"}`}), says("It is "+text+".")
	up := newUpstream(t, script(asked, said, asked, said))
	tools := newMCP(t, map[string]handler{"echo": echo})
	data := t.TempDir()
	g := mustRunIn(t, data, site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml(), environment())
	ask := func(store bool) answer {
		body := fmt.Sprintf(`{"model":"m","store":%t,"input":%q}`, store, text)
		a := g.send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
		if a.status != 200 || !strings.Contains(string(a.body), text) {
			t.Fatalf("%d %s", a.status, a.body)
		}
		return a
	}
	made := ask(false)
	runID := made.header.Get("Turnpike-Run-Id")
	if files := filesWith(t, data, text); len(files) > 0 {
		t.Errorf("%q have the text", files)
	}
	if a := g.send("GET", "/v1/runs/"+runID, http0(), "Authorization", "Bearer owner-key"); a.status != 200 || !strings.Contains(string(a.body), `"name":"echo"`) {
		t.Errorf("its run: %d %s", a.status, a.body)
	}
	if a := g.send("GET", "/v1/runs/"+runID+"/events", http0(), "Authorization", "Bearer owner-key"); a.status != 404 || !strings.Contains(string(a.body), "run_not_stored") {
		t.Errorf("its events: %d %s", a.status, a.body)
	}
	ask(true)
	if files := filesWith(t, data, text); len(files) == 0 {
		t.Error("this test cannot find what is stored")
	}
}

func http0() io.Reader { return strings.NewReader("") }

// filesWith returns the files below a directory that contain the text.
func filesWith(t *testing.T, dir, text string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(text)) {
			files = append(files, d.Name())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
