package responses_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// With "store": false nothing that the client, the model or a tool said is written to the data
// directory, not even for a moment. What says that there was a run stays: audit rows, and the
// run without its texts. // G17
func TestNothingOfAResponseThatIsNotStoredIsOnDisk(t *testing.T) {
	NoLeaks(t)
	text := id.New("SECRET-")
	asked, said := Asks(Use("echo", `{"t":"`+text+`"}`), Use(text, `{}`)), Says("It is "+text+".")
	up := NewUpstream(t, Script(asked, said, asked, said))
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	data := NewData(t)
	g := MustRunIn(t, data, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml(), Environment())
	ask := func(store bool) Answer {
		body := fmt.Sprintf(`{"model":"m","store":%t,"input":%q}`, store, text)
		a := g.Send("POST", "/v1/responses", strings.NewReader(body), "Authorization", "Bearer owner-key")
		if a.Status != 200 || !strings.Contains(string(a.Body), text) {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return a
	}
	made := ask(false)
	runID := made.Header.Get("Turnpike-Run-Id")
	if files := filesWith(t, data, text); len(files) > 0 {
		t.Errorf("%q have the text", files)
	}
	if rows := g.AuditRows(4); !strings.Contains(string(rows.Body), fmt.Sprintf(`"(unknown, %d bytes)"`, len(text))) {
		t.Errorf("%s", rows.Body)
	}
	if a := g.Send("GET", "/v1/runs/"+runID, http0(), "Authorization", "Bearer owner-key"); a.Status != 200 || !strings.Contains(string(a.Body), `"name":"echo"`) {
		t.Errorf("its run: %d %s", a.Status, a.Body)
	}
	if a := g.Send("GET", "/v1/runs/"+runID+"/events", http0(), "Authorization", "Bearer owner-key"); a.Status != 404 || !strings.Contains(string(a.Body), "run_not_stored") {
		t.Errorf("its events: %d %s", a.Status, a.Body)
	}
	ask(true)
	if files := filesWith(t, data, text); len(files) == 0 {
		t.Error("this test cannot find what is stored")
	}
}

// With "store": false, texts are written when a call has to wait for approval, and not before. Then
// all of them are stored, because another process may continue the run. They are deleted with the
// run. // G17 P02
func TestTextsOfAResponseThatIsNotStoredAreOnDiskOnlyIfItWaits(t *testing.T) {
	NoLeaks(t)
	for _, c := range []struct {
		name           string
		waits, restart bool
	}{{"nothing waits", false, false}, {"a call waits", true, false}, {"a restart while a call waits, after which its tool has changed", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			text, data := id.New("SECRET-"), NewData(t)
			free, asking := Asks(Use("echo", `{"t":"`+text+`"}`)).Saying("I look for "+text), Asks(Use("delete", `{"t":"`+text+`"}`))
			turns := Script(free, Says("It is "+text+"."))
			if c.waits {
				turns = Script(free, asking, Says("It is "+text+"."))
			}
			early := 0 // files with the text before the run waits
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
				if got.Number < 2 {
					early += len(filesWith(t, data, text))
				}
				turns(w, r, got)
			})
			tools := NewMCP(t, map[string]Handler{"delete": Echo})
			tools.Add("echo", func(_ context.Context, arguments string) (string, error) {
				early += len(filesWith(t, data, text))
				return arguments, nil
			}, false)
			yaml := Site{Upstream: up.URL, Runtime: "catalog_ttl: 0s", Servers: []string{Server("tools", tools.URL, "require_approval: {always: {tool_names: [delete]}}")}}.Yaml()
			g := &Gated{Data: data, Yaml: yaml, Upstream: up, Tools: tools, Documented: Manage(MustRunIn(t, data, yaml, Environment()))}
			input := []json.RawMessage{json.RawMessage(`{"role":"user","content":"` + text + `"}`)}
			send := func() RespObject {
				t.Helper()
				body, _ := json.Marshal(map[string]any{"model": "m", "store": false, "input": input})
				a := g.Send("POST", "/v1/responses", bytes.NewReader(body), "Authorization", "Bearer owner-key")
				var w struct{ Output []json.RawMessage }
				if err := json.Unmarshal(a.Body, &w); err != nil {
					t.Fatal(err)
				}
				input = append(input, w.Output...)
				return a.Responded(t)
			}
			last := send()
			if early != 0 {
				t.Errorf("%d files have the text before anything waits", early)
			}
			if files := filesWith(t, data, text); (len(files) > 0) != c.waits {
				t.Errorf("%q have the text", files)
			}
			if c.restart {
				if err := g.Stop(); err != nil {
					t.Fatal(err)
				}
				tools.Sdk.RemoveTools("delete")
				tools.Add("delete", Echo, true)
				g.Documented = Manage(MustRunIn(t, data, yaml, Environment()))
			}
			for n := 1; len(last.Of("mcp_approval_request")) == 1; n++ {
				asked := last.Of("mcp_approval_request")[0]
				approval := g.Do("GET", "/v1/approvals/"+strings.Replace(asked.ID, "mcpr", "appr", 1), "approver-key", "", 200)
				if !strings.Contains(fmt.Sprint(approval["arguments"]), text) {
					t.Errorf("an approver sees %v", approval)
				}
				created, _ := time.Parse(time.RFC3339, fmt.Sprint(approval["created_at"]))
				expires, _ := time.Parse(time.RFC3339, fmt.Sprint(approval["expires_at"]))
				if wait := expires.Sub(created); wait <= 0 || wait > 24*time.Hour {
					t.Errorf("the call waits for %v: %v", wait, approval)
				}
				if n == 3 {
					t.Fatal("it asks again and again")
				}
				input = append(input, json.RawMessage(Approve(asked.ID)))
				last = send()
			}
			if !strings.HasSuffix(last.Text(), "It is "+text+".") {
				t.Errorf("the last response is %+v", last)
			}
			if c.waits {
				told := up.Requests()[len(up.Requests())-1].Results(t)
				want := []string{`{"t":"` + text + `"}`, `{"t":"` + text + `"}`}
				if !slices.Equal(told, want) {
					t.Errorf("the tools told the model %q", told)
				}
			}
			if err := g.Stop(); err != nil {
				t.Fatal(err)
			}
			later := func() time.Time { return time.Now().Add(journal.DeleteAfter + time.Minute) }
			store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(data, app.DatabaseFile), Now: later, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			n, err := store.DeleteForgotten(t.Context())
			if err := errors.Join(err, store.Close()); n != 1 || err != nil {
				t.Errorf("%d runs were deleted, %v", n, err)
			}
			if files := filesWith(t, data, text); len(files) > 0 {
				t.Errorf("after the end, %q have the text", files)
			}
		})
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
