package gateway_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	_ "modernc.org/sqlite"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/gateway"
	"github.com/turnpike-gateway/turnpike/internal/cli"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

const twoOrgs = `
data: %q
providers: [{name: demo, kind: demo, models: [demo]}]
orgs:
  - {id: acme, keys: [{name: app, key: tp_0123456789abcdef0123456789, role: admin}, {name: reader, key: tp_reader6789abcdef0123456789, role: tools, read_only: true}]}
  - {id: beta, keys: [{name: app, key: tp_beta456789abcdef0123456789, role: admin}]}
`

// orders is a table in which each caller of each org has its own rows.
func orders(t *testing.T) (*resource.Resource, *sql.DB) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/orders.db?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id INTEGER PRIMARY KEY, org TEXT NOT NULL, item TEXT NOT NULL);
		INSERT INTO orders (org, item) VALUES ('acme', 'tea'), ('beta', 'coffee')`); err != nil {
		t.Fatal(err)
	}
	r, err := resource.Table(t.Context(), db, "orders", resource.TableOptions{
		Verbs:   []resource.Verb{resource.Get, resource.Search, resource.Update},
		Columns: []string{"id", "item"},
		Rows:    map[string]func(tool.Caller) any{"org": func(c tool.Caller) any { return c.Org }},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, db
}

// as adds a key to requests.
type as string

func (k as) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

func connect(t *testing.T, url, key string) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: as(key)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func say(r *mcp.CallToolResult, err error) string {
	if err != nil {
		return err.Error()
	}
	return r.Content[0].(*mcp.TextContent).Text
}

// auditRow is a row as the API and the command return it.
type auditRow struct {
	Key   string         `json:"key_id"`
	Run   *string        `json:"agent_run_id"`
	ID    string         `json:"request_id"`
	Kind  string         `json:"kind"`
	Body  map[string]any `json:"body"`
	First int            `json:"first"` // of the trailer
}

func rowsOf(t *testing.T, gw http.Handler, query string) []auditRow {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/api/audit?"+query, nil)
	r.Header.Set("Authorization", "Bearer tp_0123456789abcdef0123456789")
	w := httptest.NewRecorder()
	gw.ServeHTTP(w, r)
	var page struct{ Data []auditRow }
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	return page.Data
}

// lamp is a resource with a verb, a method that it declares as a tool, and one that it does not.
type lamp struct{}

func (lamp) Get(_ context.Context, id string) (string, error) { return id + " is off", nil }
func (lamp) Smash(context.Context, string) error              { return nil }
func (lamp) MCPTools() []tool.Tool {
	type which struct {
		ID string `json:"id"`
	}
	on := func(_ context.Context, w which) (string, error) { return w.ID + " is on", nil }
	return []tool.Tool{tool.Func("switch_on", "Switch a lamp on.", on)}
}

// A method that a resource declares is a tool of the loop and of /mcp, with the same result; another method is on neither. // D31
func TestDeclaredMethodsAreToolsOfTheLoopAndOfMCP(t *testing.T) {
	r := resource.New("lamp", lamp{})
	want := []string{"get_lamp", "switch_on_lamp"}
	m := turnpiketest.NewScript(t, "call c1 switch_on_lamp {\"id\":\"a\"}\n\ntext Done.\n")
	a := &turnpike.Agent{Model: m, Resources: []tool.Provider{r}}
	result, err := a.Run(t.Context(), turnpike.Text("go"), turnpike.ShowTrace())
	if err != nil || result.Steps[0].Calls[0].Result != "a is on" {
		t.Fatalf("%+v %v", result, err)
	}
	var offered []string
	for _, one := range m.Requests()[0].Tools {
		offered = append(offered, one.Name)
	}
	if slices.Sort(offered); !slices.Equal(offered, want) {
		t.Errorf("the loop offers %q", offered)
	}

	config, err := gateway.Parse(fmt.Sprintf(twoOrgs, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	config.Resources = []*resource.Resource{r}
	gw, err := gateway.New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gw)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	defer server.Close()
	defer func() { _ = gw.Close() }()
	app := connect(t, server.URL, "tp_0123456789abcdef0123456789")
	defer app.Close()
	list, err := app.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, one := range list.Tools {
		listed = append(listed, one.Name)
	}
	if slices.Sort(listed); !slices.Equal(listed, want) {
		t.Errorf("/mcp lists %q", listed)
	}
	call := &mcp.CallToolParams{Name: "switch_on_lamp", Arguments: json.RawMessage(`{"id":"a"}`)}
	if got := say(app.CallTool(t.Context(), call)); got != "a is on" {
		t.Errorf("over /mcp: %s", got)
	}
}

// One query returns what an agent, a person and a client at /mcp did with a resource, in rows of the same form,
// over the API and with the command. They are part of the signed chain. // L13
func TestOneQueryReturnsCallsOfAgentsAndPeople(t *testing.T) {
	data := t.TempDir()
	text := fmt.Sprintf(twoOrgs, data)
	config, err := gateway.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	r, _ := orders(t)
	config.Resources = []*resource.Resource{r}
	config.Tools = tool.Tools{tool.Func("now", "", func(context.Context, struct{}) (string, error) { return "noon", nil }).ReadOnly()}
	gw, err := gateway.New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gw)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	defer server.Close()
	defer func() { _ = gw.Close() }()

	app := connect(t, server.URL, "tp_0123456789abcdef0123456789")
	defer app.Close()
	list, err := app.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 4 {
		t.Fatal(list, err)
	}
	if got := say(app.CallTool(t.Context(), &mcp.CallToolParams{Name: "search_orders", Arguments: json.RawMessage(`{}`)})); got != `{"rows":[{"id":1,"item":"tea"}],"more":false}` {
		t.Error(got)
	}
	change := json.RawMessage(`{"id":1,"set":{"item":"green tea"}}`)
	if got := say(app.CallTool(t.Context(), &mcp.CallToolParams{Name: "update_orders", Arguments: change})); got != `{"id":1}` {
		t.Error(got)
	}
	if got := say(app.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_orders", Arguments: json.RawMessage(`{"id":2}`)})); !strings.Contains(got, "not found") {
		t.Errorf("a row of another org: %s", got)
	}
	beta := connect(t, server.URL, "tp_beta456789abcdef0123456789")
	defer beta.Close()
	if got := say(beta.CallTool(t.Context(), &mcp.CallToolParams{Name: "search_orders", Arguments: json.RawMessage(`{}`)})); got != `{"rows":[{"id":2,"item":"coffee"}],"more":false}` {
		t.Errorf("a key of the same name of another org: %s", got)
	}
	reader := connect(t, server.URL, "tp_reader6789abcdef0123456789")
	defer reader.Close()
	if list, err := reader.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 3 {
		t.Error(list, err)
	}
	if got := say(reader.CallTool(t.Context(), &mcp.CallToolParams{Name: "update_orders", Arguments: change})); !strings.Contains(got, "unknown tool") {
		t.Error(got)
	}

	r.Audit(gw.Audit("acme"))
	ada := turnpike.Caller{ID: "ada", Org: "acme", Permissions: []string{"update_orders"}}
	agent := &turnpike.Agent{Model: turnpiketest.NewScript(t, "call c1 update_orders {\"set\":{\"item\":\"green tea\"},\"id\":1}\n\ntext Done.\n"), Resources: []tool.Provider{r}}
	result, err := agent.Run(t.Context(), turnpike.Text("go"), turnpike.As(ada))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.As(ada).Call(t.Context(), resource.Update, change, nil); err != nil {
		t.Fatal(err)
	}

	// A row of a call that has ended is written a little later, or with the next one that is stored at once.
	if got := say(beta.CallTool(t.Context(), &mcp.CallToolParams{Name: "update_orders", Arguments: json.RawMessage(`{"id":2,"set":{"item":"x"}}`)})); got != `{"id":2}` {
		t.Error(got)
	}
	rows := rowsOf(t, gw, "kind=resource.call&limit=100")
	var writes []auditRow
	for _, one := range rows {
		if one.Body["tool"] == "update_orders" {
			writes = append(writes, one)
		}
	}
	if len(rows) != 8 || len(writes) != 6 {
		t.Fatalf("%d rows, %d of writes: %+v", len(rows), len(writes), rows)
	}
	for i, want := range []string{"app mcp", "app mcp", "ada program", "ada program", "ada program", "ada program"} {
		one := writes[i]
		status := []string{"started", "ok"}[i%2]
		if got := fmt.Sprint(one.Key, " ", one.Body["via"]); got != want || one.Body["status"] != status || one.Body["args_digest"] != writes[0].Body["args_digest"] || (i%2 == 1 && one.Body["result_digest"] != writes[1].Body["result_digest"]) {
			t.Errorf("row %d: %s, want %s %s: %+v", i, got, want, status, one)
		}
		if i/2 == 1 != (one.Run != nil) {
			t.Errorf("row %d has the run %v", i, one.Run)
		}
		members := func(r auditRow) (names []string) {
			for name := range r.Body {
				if name != "tool_call_key" { // of a run
					names = append(names, name)
				}
			}
			slices.Sort(names)
			return names
		}
		if !slices.Equal(members(one), members(writes[i%2])) {
			t.Errorf("row %d has the members %v, and the one of a client %v", i, members(one), members(writes[i%2]))
		}
	}
	if byRun := rowsOf(t, gw, "run_id="+result.RunID); len(byRun) != 2 || *byRun[0].Run != *writes[2].Run {
		t.Errorf("of the run: %+v", byRun)
	}
	if byCaller := rowsOf(t, gw, "key_id=ada"); len(byCaller) != 4 {
		t.Errorf("of the caller: %+v", byCaller)
	}
	if byRequest := rowsOf(t, gw, "request_id="+writes[0].ID); len(byRequest) != 4 { // and the two of the call over /mcp
		t.Errorf("of the request: %+v", byRequest)
	}
	checkWithTheCommand(t, gw, text)
}

// checkWithTheCommand verifies the chain of the org, and lists the rows with the command.
func checkWithTheCommand(t *testing.T, gw *gateway.Gateway, text string) {
	t.Helper()
	run := command(t, gw, text)
	if got := run("audit", "list", "--org", "acme", "--kind", "resource.call"); strings.Count(got, "update_orders") != 6 || strings.Count(got, " ada ") != 4 {
		t.Error(got)
	}
	if got := run("audit", "verify", "--org", "acme"); !strings.Contains(got, ": ok") {
		t.Error(got)
	}
}

// command closes the gateway, and returns what runs commands on its data.
func command(t *testing.T, gw *gateway.Gateway, text string) (run func(args ...string) string) {
	t.Helper()
	if err := gw.Close(); err != nil { // signs the last rows
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "turnpike.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) string {
		var out bytes.Buffer
		if status := cli.Main(t.Context(), cli.Process{Args: append(args, "--config", file), Env: os.LookupEnv, Stdout: &out, Stderr: &out}); status != 0 {
			t.Errorf("%v: %d %s", args, status, &out)
		}
		return out.String()
	}
}

// A write that cannot be recorded is not executed.
func TestAWriteThatTheAuditLogDoesNotTake(t *testing.T) {
	config, err := gateway.Parse(fmt.Sprintf(twoOrgs, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	gw, err := gateway.New(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gw.Close() }()
	r, db := orders(t)
	change := json.RawMessage(`{"id":1,"set":{"item":"nothing"}}`)
	try := func(r *resource.Resource, id string) error {
		return r.As(tool.Caller{ID: id, Org: "acme", Permissions: []string{"*"}}).Call(t.Context(), resource.Update, change, nil)
	}
	unknown, known := r.Copy().Audit(gw.Audit("gamma")), r.Copy().Audit(gw.Audit("acme"))
	if err := try(unknown, "ada"); err == nil || !strings.Contains(err.Error(), "was not executed") {
		t.Errorf("an org that does not exist: %v", err)
	}
	if err := try(known, "@operator"); err == nil {
		t.Error("a caller with the name of the operator")
	}
	_ = gw.Close()
	if err := try(known, "ada"); err == nil {
		t.Error("after Close")
	}
	var item string
	if err := db.QueryRowContext(t.Context(), "SELECT item FROM orders WHERE id = 1").Scan(&item); err != nil || item != "tea" {
		t.Error(item, err)
	}
}

func TestWrongResources(t *testing.T) {
	r, _ := orders(t)
	for want, change := range map[string]func(*gateway.Config){
		"is nil":           func(c *gateway.Config) { c.Resources = []*resource.Resource{nil} },
		"have both a tool": func(c *gateway.Config) { c.Resources = []*resource.Resource{r, r} },
		"names the verb":   func(c *gateway.Config) { c.Resources = []*resource.Resource{r.Copy().Only("fly")} },
		"Config.Tools and": func(c *gateway.Config) {
			c.Resources, c.Tools = []*resource.Resource{r}, tool.Tools{tool.Func("get_orders", "", func(context.Context, struct{}) (string, error) { return "", nil })}
		},
		"Config.Tools and Config.Re": func(c *gateway.Config) {
			c.Resources, c.Tools = []*resource.Resource{r}, verbs{tool.Func("get_orders", "", func(context.Context, struct{}) (string, error) { return "", nil })}
		},
	} {
		config, err := gateway.Parse(fmt.Sprintf(yaml, t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		change(&config)
		if _, err := gateway.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// witness is a value that looks at the audit log while it is called.
type witness struct{ rows func() int }

func (w witness) Create(context.Context, struct{}) (int, error) { return w.rows(), nil }

// A write is in the audit log before it is executed, by whatever way it comes. // L13
func TestAWriteIsRecordedBeforeItIsExecuted(t *testing.T) {
	config, err := gateway.Parse(fmt.Sprintf(twoOrgs, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	var gw *gateway.Gateway
	started := func() (n int) {
		for _, row := range rowsOf(t, gw, "kind=resource.call&limit=100") {
			if row.Body["status"] == "started" {
				n++
			}
		}
		return n
	}
	r := resource.New("thing", witness{func() int { return started() }})
	config.Resources = []*resource.Resource{r}
	if gw, err = gateway.New(config); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gw)
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	defer server.Close()
	defer func() { _ = gw.Close() }()
	app := connect(t, server.URL, "tp_0123456789abcdef0123456789")
	defer app.Close()
	if got := say(app.CallTool(t.Context(), &mcp.CallToolParams{Name: "create_thing", Arguments: json.RawMessage(`{}`)})); got != "1" {
		t.Errorf("over /mcp: %s", got)
	}
	var seen int
	if err := r.Audit(gw.Audit("acme")).As(tool.Caller{ID: "ada", Permissions: []string{"*"}}).Call(t.Context(), resource.Create, nil, &seen); err != nil || seen != 2 {
		t.Errorf("by a person: %d %v", seen, err)
	}
}
