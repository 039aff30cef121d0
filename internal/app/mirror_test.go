package app_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// mirror is a gateway with two orgs that have the same things: o, whose keys are those of site, and other.
type mirror struct {
	Documented
	data, yaml string
	up         *Upstream
	tools      *MCPServer
	release    chan struct{} // closed: the model answers runs whose message is HOLD
	o, other   *world
}

// world is what one org has. A chain is the ids of a thing and of what it is in: agent, hook.
type world struct {
	org, owner string
	chains     map[string][][]string // by kind
}

// newMirror starts the gateway. extra are keys of the configuration file.
func newMirror(t *testing.T, extra string) *mirror {
	m := &mirror{data: NewData(t), release: make(chan struct{})}
	m.up = NewUpstream(t, m.model)
	m.tools = NewMCP(t, map[string]Handler{"pay": Echo})
	m.yaml = extra + strings.Replace(Site{Upstream: m.up.URL}.WithVault(), "    runtime: {}\n", "", 1)
	m.Documented = Manage(MustRunIn(t, m.data, m.yaml, Environment()))
	t.Cleanup(func() { close(m.release) }) // before the gateway stops, which waits for what runs
	m.Do("POST", "/api/orgs", "operator-key", `{"id":"other","features":["mcp_outbound"]}`, 201)
	stranger := m.Do("POST", "/api/orgs/other/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	m.o, m.other = m.furnish("o", "owner-key"), m.furnish("other", stranger)
	return m
}

// model asks for the tool pay if the latest message is GATE, and holds the answer to HOLD until release.
func (m *mirror) model(w http.ResponseWriter, r *http.Request, got Received) {
	switch said := LastSaid(got.Body); said {
	case "HOLD":
		w.Header().Set("Content-Type", "text/event-stream")
		beats := time.NewTicker(30 * time.Second) // a provider that is silent for too long has failed
		defer beats.Stop()
		for held := true; held; {
			_, _ = io.WriteString(w, ": still here\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-beats.C:
			case <-m.release:
				held = false
			case <-r.Context().Done():
				return
			}
		}
	case "GATE":
		Asks(Use("mcp__shop__pay", `{"amount":1}`)).Write(w)
		return
	}
	Says("Done.").Write(w)
}

// furnish gives an org one thing of each kind, and two of those that others are in.
func (m *mirror) furnish(org, owner string) *world {
	w := &world{org, owner, map[string][][]string{}}
	add := func(kind string, ids ...string) { w.chains[kind] = append(w.chains[kind], ids) }
	create := func(path, body string) string {
		return m.Do("POST", path, owner, body, 201)["id"].(string)
	}
	m.Do("PATCH", "/api/org/runtime", owner, `{"deadline":"30m"}`, 200) // what runs is to run until the test ends
	create("/api/tools", customTool("assigned_"+org))
	tool := create("/api/tools", customTool("tool_"+org))
	for i, name := range []string{"first", "second", "archived"} {
		id := create("/api/agents", fmt.Sprintf(`{"name":%q,"model":"m","system_prompt":"Of %s.","mcp_servers":[{"name":"shop","url":%q,"config":{"require_approval":"always"}}]}`,
			name, org, m.tools.URL+"/mcp"))
		m.Do("PATCH", "/api/agents/"+id, owner, `{"description":"changed"}`, 200)
		add("agent", id)
		add("version", id, "1")
		add("agent hook", id, create("/api/agents/"+id+"/hooks", AgentHook))
		add("agent server", id, create("/api/agents/"+id+"/mcp-servers", agentServer))
		add("agent tool", id, create("/api/agents/"+id+"/tools", fmt.Sprintf(`{"tool_type":"custom","tool_name":"tassigned_%s"}`, org)))
		session := create("/api/agents/"+id+"/sessions", `{"title":"one","initial_messages":[{"role":"user","content":"Before."}]}`)
		if add("session", session); i < 2 {
			m.runs(w, id)
		}
		if add("agent session", id, session); name == "archived" {
			m.Do("POST", "/api/agents/"+id+"/archive", owner, "{}", 200)
		}
	}
	m.Do("PUT", "/api/settings", owner, `{"settings":{"EXA_API_KEY":"canary of `+org+`","AGENT_MAX_STEPS":9}}`, 200)
	add("setting", "AGENT_MAX_STEPS")
	m.Do("PUT", "/api/secrets/vault-"+org, owner, `{"value":"a value"}`, 200)
	add("secret", "vault-"+org)
	m.Do("POST", "/api/mcp-servers", owner, fmt.Sprintf(`{"name":"server-%s","url":"https://example.com/mcp","enabled":false}`, org), 201)
	add("server", "server-"+org)
	m.Do("PATCH", "/api/org/runtime", owner, fmt.Sprintf(`{"buckets":[{"name":"bucket-%s"}]}`, org), 200)
	add("bucket", "bucket-"+org)
	m.Do("PUT", "/api/buckets/bucket-"+org+"/files/file-"+org, owner, "content", 200)
	add("bucket file", "bucket-"+org, "file-"+org)
	file := m.Uploaded(owner, Upload{Name: "a.txt", Text: "content"}, 200)["id"].(string)
	add("file", file)
	add("container file", "cntr_"+org, file)
	add("tool", tool)
	add("key", create("/api/keys", `{"name":"spare","role":"reader"}`))
	a := m.Send("POST", "/v1/responses", strings.NewReader(askedResponses), "Authorization", "Bearer "+owner)
	var made struct{ ID string }
	if err := json.Unmarshal(a.Body, &made); err != nil || made.ID == "" {
		m.T.Fatalf("%v %s", err, a.Body)
	}
	add("response", made.ID)
	both := &twoOrgs{Documented: m.Documented}
	conversation, item, _ := strings.Cut(both.conversationItem(owner), "/items/")
	add("conversation", conversation)
	add("item", conversation, item)
	add("chat session", both.chatSession(owner))
	return w
}

// runs starts runs of an agent: one that ends, one that waits for an approval, and one that runs.
func (m *mirror) runs(w *world, agent string) {
	for message, status := range map[string]string{"END": "idle", "GATE": "waiting", "HOLD": "running"} {
		session, run := m.Leave(w.owner, agent, fmt.Sprintf(`{"message":%q,"detached":true}`, message))
		m.Becomes(w.owner, session, status)
		w.chains["agent run"] = append(w.chains["agent run"], []string{run})
		w.chains["run"] = append(w.chains["run"], []string{run})
		w.chains["session"] = append(w.chains["session"], []string{session})
		if status == "waiting" {
			var waits []any
			ComesTrue(m.T, "the run shows its approval", func() bool {
				waits = Elements(m.Do("GET", "/api/agents/runs/"+run, w.owner, "", 200)["approvals"])
				return len(waits) == 1
			})
			w.chains["approval"] = append(w.chains["approval"], []string{waits[0].(string)})
		}
	}
}

// kindOf says what the ids of a route name, by what stands before its last id. A new route with an id fails
// TestTwoOrgsDoNotExistForEachOther until its kind is here, and furnish makes one. "" = it is not an id: the
// name means the same for every org.
func kindOf(pattern string) (kind string, known bool) {
	_, path, _ := strings.Cut(pattern, " ")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	last := 0
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			last = i
		}
	}
	kinds := map[string]string{
		"api/agents/{id}": "agent", "api/agents/{id}/versions/{version}": "version", "api/agents/{id}/hooks/{hid}": "agent hook", "api/agents/{id}/tools/{aid}": "agent tool",
		"api/agents/{id}/mcp-servers/{sid}": "agent server", "api/agents/{id}/sessions/{sid}": "agent session", "api/agents/runs/{id}": "agent run",
		"api/tools/{id}": "tool", "api/sessions/{id}": "session", "api/settings/{key}": "", "api/secrets/{name}": "secret", "api/mcp-servers/{name}": "server", "api/keys/{id}": "key",
		"api/runs/{id}": "run", "v1/runs/{id}": "run", "v1/approvals/{id}": "approval", "v1/agent/approvals/{id}": "approval", "v1/responses/{id}": "response",
		"v1/files/{id}": "file", "api/buckets/{name}": "bucket", "api/buckets/{name}/files/{path...}": "bucket file", "v1/blobs/{id}": "", // a signed URL
		"v1/conversations/{id}": "conversation", "v1/conversations/{id}/items/{item}": "item", "v1/models/{model...}": "",
		"v1/sessions/{id}":                     "chat session",
		"v1/containers/{container}/files/{id}": "container file", "v1/containers/{container}/files": "", "v1/containers/{container}": "", // an empty list
		"api/webhooks/{name}": "", "api/webhooks/{name}/deliveries/{id}": "", // TestEveryRouteIsGuarded
	}
	kind, known = kinds[strings.Join(parts[:last+1], "/")]
	return kind, known
}

// goodBodies are bodies that routes accept, if the thing exists. Other routes accept {}.
func goodBodies() map[string]string {
	return map[string]string{
		"PATCH /api/agents/{id}":                 `{"description":"taken over"}`,
		"POST /api/agents/{id}/mcp-servers":      agentServer,
		"PUT /api/agents/{id}/mcp-servers/{sid}": `{"enabled":false}`,
		"POST /api/agents/{id}/hooks":            AgentHook,
		"POST /api/agents/{id}/tools":            `{"tool_type":"builtin","tool_name":"web_search"}`,
		"PUT /api/tools/{id}":                    `{"description":"taken over"}`,
		"POST /api/agents/{id}/run":              `{"message":"x"}`,
		"POST /api/agents/{id}/run/stream":       `{"message":"x"}`,
		"POST /api/agents/runs/{id}/approve":     `{"approved":true}`,
		"POST /v1/approvals/{id}":                `{"decision":"approve"}`,
		"POST /v1/agent/approvals/{id}":          `{"decision":"approve"}`,
		"POST /v1/runs/{id}/limits":              `{"rounds":30}`,
		"POST /v1/conversations/{id}":            `{"metadata":{"a":"b"}}`,
		"PUT /v1/sessions/{id}":                  `{"messages":[{"role":"user","content":"x"}]}`,
		"POST /v1/sessions/{id}/fork":            `{"session_id":"copy"}`,
		"POST /v1/sessions/{id}/rewind":          `{"before_run":"run_x"}`,
		"POST /v1/conversations/{id}/rewind":     `{"before_run":"run_x"}`,
		"POST /api/sessions/{id}/rewind":         `{"before_run":"run_x"}`,
		"POST /v1/conversations/{id}/items":      `{"items":[{"role":"user","content":"x"}]}`,
		"PATCH /api/mcp-servers/{name}":          `{"url":"https://example.com/taken"}`,
		"PATCH /api/keys/{id}":                   `{"name":"taken"}`,
		"POST /api/buckets/{name}/signed-urls":   `{"path":"x"}`,
	}
}

// absent returns ids of the same form as those of a chain from a place on: things that do not exist.
func absent(chain []string, from int) []string {
	out := slices.Clone(chain)
	for i := from; i < len(out); i++ {
		if last := out[i][len(out[i])-1]; len(out[i]) > 2 && last != '7' {
			out[i] = out[i][:len(out[i])-1] + "7"
		} else if len(out[i]) > 2 {
			out[i] = out[i][:len(out[i])-1] + "6"
		}
	}
	return out
}

// said is an answer in which the ids of the request stand as ID.
func (m *mirror) said(key, pattern string, ids []string, body string, more ...string) string {
	m.T.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	parts, n := strings.Split(path, "/"), 0
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i] = url.PathEscape(ids[n])
			n++
		}
	}
	a := m.Send(method, strings.Join(parts, "/"), strings.NewReader(body), "Authorization", "Bearer "+key)
	header := a.Header.Clone()
	for _, name := range []string{"Date", "Turnpike-Request-Id", "X-Request-Id"} {
		header.Del(name)
	}
	var b bytes.Buffer
	if err := header.Write(&b); err != nil {
		m.T.Fatal(err)
	}
	text := fmt.Sprintf("%d %s%s", a.Status, b.String(), a.Body)
	for _, id := range append(ids, more...) {
		if len(id) > 2 {
			text = strings.ReplaceAll(text, id, "ID")
		}
	}
	return text
}

// same fails the test unless two requests are answered with the same bytes. With want, both are of the status.
func (m *mirror) same(what, got, missing string, want ...string) {
	m.T.Helper()
	if got != missing {
		m.T.Errorf("%s is answered with\n%s\nand what does not exist with\n%s", what, got, missing)
	}
	if len(want) > 0 && !slices.ContainsFunc(want, func(w string) bool { return strings.HasPrefix(got, w+" ") }) {
		m.T.Errorf("%s is answered with\n%s", what, got)
	}
}

// rows returns all rows of an org, without what changes while nothing happens.
func (m *mirror) rows(org string) map[string]string {
	m.T.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(m.data, app.DatabaseFile)+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		m.T.Fatal(err)
	}
	defer db.Close()
	out := map[string]string{}
	for _, table := range tablesOfOrgs(m.T, db) {
		var b strings.Builder
		for _, row := range rowsOf(m.T, db, table, org) {
			fmt.Fprintln(&b, row)
		}
		out[table] = b.String()
	}
	return out
}

// tablesOfOrgs returns the tables with a column org.
func tablesOfOrgs(t *testing.T, db *sql.DB) (names []string) {
	t.Helper()
	rows, err := db.Query(`SELECT t.name FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' AND c.name = 'org' ORDER BY t.name`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil || len(names) < 20 {
		t.Fatalf("%d tables: %v", len(names), err)
	}
	return names
}

// rowsOf returns the rows of an org as texts, sorted. Leases are left out: they are renewed.
func rowsOf(t *testing.T, db *sql.DB, table, org string) (all []string) {
	t.Helper()
	rows, err := db.Query(`SELECT * FROM "`+table+`" WHERE org = ?`, org)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for i, name := range columns {
			if name != "lease_until" {
				fmt.Fprintf(&b, "%s=%v ", name, values[i])
			}
		}
		all = append(all, b.String())
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// routesWithIDs returns the routes of keys whose paths have ids.
func routesWithIDs() (patterns []string) {
	for _, rt := range app.Routes() {
		if strings.Contains(rt.Pattern, "{") && rt.Serve != nil && rt.Roles != surface.Operator {
			patterns = append(patterns, rt.Pattern)
		}
	}
	return patterns
}

// For the other org, nothing that an org has exists. Every route with an id is tried with every
// id of the other org, in every place of its path: the answer is that to an id of the same form that does not
// exist, with the same headers, and nothing in the other org changes. New routes are tried, too. // J13 K07 J21
func TestTwoOrgsDoNotExistForEachOther(t *testing.T) {
	NoLeaks(t)
	m := newMirror(t, "")
	before, own := m.rows("o"), m.rows("other")
	tried := 0
	for _, pattern := range routesWithIDs() {
		kind, known := kindOf(pattern)
		if !known {
			t.Errorf("%s: kindOf does not know what its ids name", pattern)
		}
		if kind == "" {
			continue
		}
		chains := m.o.chains[kind]
		if len(chains) == 0 {
			t.Errorf("%s: furnish makes no %s", pattern, kind)
		}
		for i, foreign := range chains {
			mine := m.other.chains[kind][i]
			for _, body := range []string{goodBodies()[pattern], "{}", `{"nonsense":1}`, "{"} {
				var want []string
				if body == goodBodies()[pattern] {
					want = []string{"404"}
				}
				if body == "" {
					if body, want = "{}", []string{"404"}; pattern == "PUT /api/secrets/{name}" { // which creates one
						want = []string{"400"}
					}
				}
				if want != nil && (pattern == "PUT /v1/sessions/{id}" || pattern == "DELETE /v1/sessions/{id}") { // the ids are those of one's own key
					want = []string{"200"}
				}
				ask := func(ids []string) string { return m.said(m.other.owner, pattern, ids, body) }
				what := fmt.Sprintf("%s of a foreign %s %q, body %s,", pattern, kind, foreign, body)
				m.same(what, ask(foreign), ask(absent(foreign, 0)), want...)
				if tried++; len(foreign) == 2 && kind != "version" {
					if pattern != "PUT /api/buckets/{name}/files/{path...}" { // which creates one
						m.same(what+" in one's own", ask([]string{mine[0], foreign[1]}), ask(absent([]string{mine[0], foreign[1]}, 1)), want...)
					}
					m.same(what+" around one's own", ask([]string{foreign[0], mine[1]}), ask([]string{absent(foreign, 0)[0], mine[1]}), want...)
				}
			}
		}
	}
	m.idsInBodies()
	delete(own, "audit_log") // who is refused is recorded
	if tried < 200 {
		t.Errorf("only %d requests were tried", tried)
	}
	m.unchanged("o", before)
	m.unchanged("other", own)
}

// unchanged fails the test if rows of an org have changed.
func (m *mirror) unchanged(org string, before map[string]string) {
	m.T.Helper()
	for table, rows := range m.rows(org) {
		if was, seen := before[table]; seen && rows != was && table != "audit_checkpoints" {
			m.T.Errorf("the rows of %s in %s were\n%s\nand are\n%s", org, table, before[table], rows)
		}
	}
}

// idsInBodies tries foreign ids that requests name elsewhere than in their paths.
func (m *mirror) idsInBodies() {
	m.T.Helper()
	agent := m.other.chains["agent"][0]
	for _, foreign := range m.o.chains["session"] {
		for _, pattern := range []string{"POST /api/agents/{id}/run", "POST /api/agents/{id}/run/stream"} {
			ask := func(session string) string {
				return m.said(m.other.owner, pattern, agent, fmt.Sprintf(`{"message":"x","session_id":%q}`, session), session)
			}
			m.same(pattern+" with a foreign session", ask(foreign[0]), ask(absent(foreign, 0)[0]), "404")
		}
	}
	for _, foreign := range m.o.chains["approval"] {
		for _, run := range m.other.chains["agent run"] {
			ask := func(id string) string {
				return m.said(m.other.owner, "POST /api/agents/runs/{id}/approve", run, fmt.Sprintf(`{"approved":true,"approval_id":%q}`, id), id)
			}
			m.same("a foreign approval", ask(foreign[0]), ask(absent(foreign, 0)[0]), "404")
		}
	}
	for _, foreign := range m.o.chains["tool"] {
		ask := func(id string) string {
			return m.said(m.other.owner, "POST /api/agents/{id}/tools", agent, fmt.Sprintf(`{"tool_type":"custom","tool_name":"ttool_o","tool_id":%q}`, id), id)
		}
		m.same("a foreign tool", ask(foreign[0]), ask(absent(foreign, 0)[0]), "404", "400")
	}
	for _, kind := range []string{"agent", "session"} {
		for _, route := range []string{"agent-runs", "tool-calls", "filter-options", "health"} {
			for _, foreign := range m.o.chains[kind] {
				ask := func(id string) string {
					return m.said(m.other.owner, "GET /api/observability/"+route+"?"+kind+"_id="+id, nil, "", id)
				}
				m.same(route+" of a foreign "+kind, ask(foreign[0]), ask(absent(foreign, 0)[0]), "200", "400")
			}
		}
	}
	for _, kind := range []string{"response", "conversation", "session", "run"} {
		for _, foreign := range m.o.chains[kind] {
			for _, member := range []string{"previous_response_id", "conversation"} {
				ask := func(id string) string {
					return m.said(m.other.owner, "POST /v1/responses", nil, fmt.Sprintf(`{"model":"m","input":"x",%q:%q}`, member, id), id)
				}
				m.same("a response with a foreign "+kind+" as "+member, ask(foreign[0]), ask(absent(foreign, 0)[0]), "404", "400")
			}
		}
	}
}

// For another key of the org with the role member, sessions and their runs do not exist; things of one
// agent are not those of another; an approval is decided through its own run. // J13
func TestWrongCombinationsInAnOrgDoNotExist(t *testing.T) {
	NoLeaks(t)
	m := newMirror(t, "")
	before := m.rows("o")
	for _, pattern := range routesWithIDs() {
		kind, _ := kindOf(pattern)
		chains := m.o.chains[kind]
		body := goodBodies()[pattern]
		if body == "" {
			body = "{}"
		}
		if len(chains) > 1 && len(chains[0]) == 2 && kind != "version" {
			for i := range chains {
				wrong := []string{chains[i][0], chains[(i+1)%len(chains)][1]}
				m.same(pattern+" in another "+kind, m.said(m.o.owner, pattern, wrong, body), m.said(m.o.owner, pattern, absent(wrong, 1), body), "404")
			}
		}
		if slices.Contains([]string{"session", "agent session", "agent run", "run", "approval"}, kind) {
			for _, foreign := range chains {
				m.same(pattern+" by another member", m.said("member-key", pattern, foreign, body), m.said("member-key", pattern, absent(foreign, len(foreign)-1), body), "404", "403")
			}
		}
	}
	for _, session := range m.o.chains["session"] {
		ask := func(key, agent, session string) string {
			return m.said(key, "POST /api/agents/{id}/run/stream", []string{agent}, fmt.Sprintf(`{"message":"x","session_id":%q}`, session), session)
		}
		none := absent(session, 0)[0]
		m.same("a session of another key", ask("member-key", m.o.chains["agent"][0][0], session[0]), ask("member-key", m.o.chains["agent"][0][0], none), "404")
		of := m.Do("GET", "/api/sessions/"+session[0], m.o.owner, "", 200)["agent_id"]
		for _, other := range m.o.chains["agent"][:2] {
			if other[0] != of {
				m.same("a session of another agent", ask(m.o.owner, other[0], session[0]), ask(m.o.owner, other[0], none), "404")
			}
		}
	}
	for _, id := range m.o.chains["approval"] {
		for _, run := range m.o.chains["agent run"] {
			if waits := m.Do("GET", "/api/agents/runs/"+run[0], m.o.owner, "", 200)["approvals"]; slices.Contains(Elements(waits), any(id[0])) {
				continue
			}
			for _, key := range []string{m.o.owner, "approver-key"} {
				ask := func(id string) string {
					return m.said(key, "POST /api/agents/runs/{id}/approve", run, fmt.Sprintf(`{"approved":true,"approval_id":%q}`, id), id)
				}
				m.same("an approval of another run", ask(id[0]), ask(absent(id, 0)[0]), "404")
			}
		}
	}
	delete(before, "audit_log") // who is refused is recorded
	m.unchanged("o", before)
	if calls := m.tools.Of("tools/call"); len(calls) != 0 {
		t.Errorf("%d calls were executed", len(calls))
	}
}

// A setting that one org changes is that of no other. // K13
func TestSettingsAreThoseOfTheirOrg(t *testing.T) {
	NoLeaks(t)
	m := newMirror(t, "")
	before := m.rows("o")
	m.Do("PUT", "/api/settings/AGENT_MAX_STEPS", m.other.owner, `{"value":3}`, 200)
	m.Do("PUT", "/api/settings/EXA_API_KEY", m.other.owner, `{"value":"another"}`, 200)
	m.Do("POST", "/api/settings/reset-category", m.other.owner, `{"category":"tools"}`, 200)
	m.Do("DELETE", "/api/settings/AGENT_MAX_STEPS", m.other.owner, "", 200)
	m.unchanged("o", before)
	if text, err := io.ReadAll(bytes.NewReader(m.Send("GET", "/api/settings", nil).Body)); err != nil || strings.Contains(string(text), "canary") {
		t.Errorf("%v %s", err, text)
	}
}
