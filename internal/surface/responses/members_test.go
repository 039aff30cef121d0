package responses_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// memberTable is the table of docs/responses.md that says what happens with each member of the
// document of OpenAI: by the name of its row, and then by its column.
func memberTable(t *testing.T) map[string]map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/responses.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## Every member of the API\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	names := regexp.MustCompile("`([^`]+)`")
	table := map[string]map[string][]string{}
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| ") || len(cells) != 4 || strings.Contains(cells[1], "---") {
			continue
		}
		row := map[string][]string{}
		for i, column := range []string{"carried", "ours", "refused"} {
			for _, name := range names.FindAllStringSubmatch(cells[i+1], -1) {
				row[column] = append(row[column], name[1])
			}
		}
		table[strings.TrimSpace(cells[0])] = row
	}
	delete(table, "")
	return table
}

// The table names each member of the document once, and nothing else. // P11
func TestTheTableHasEveryMemberOfTheDocument(t *testing.T) {
	table := memberTable(t)
	if len(table) != 9 {
		t.Errorf("%d rows: has the form of the page changed?", len(table))
	}
	documented := spectest.Read(t).Members()
	for row, columns := range table {
		named := slices.Sorted(slices.Values(slices.Concat(columns["carried"], columns["ours"], columns["refused"])))
		if diff := diffOf(documented[row], named); diff != "" {
			t.Errorf("%s: the document (-) and the table (+): %s", row, diff)
		}
	}
	for row := range documented {
		if table[row] == nil {
			t.Errorf("the table has no row %s", row)
		}
	}
}

// memberValues is a value for each member of a request that is carried or refused.
var memberValues = map[string]string{
	"prompt":             `{"id":"pmpt_1"}`,
	"context_management": `[{"type":"compaction","compact_threshold":100000}]`, "include": `["reasoning.encrypted_content"]`, "max_output_tokens": `77`,
	"metadata": `{"k":"v"}`, "moderation": `{"model":"omni-moderation-latest"}`, "parallel_tool_calls": `false`, "prompt_cache_key": `"key"`,
	"prompt_cache_options": `{"ttl":"24h"}`, "prompt_cache_retention": `"24h"`, "reasoning": `{"effort":"low"}`, "safety_identifier": `"s"`,
	"service_tier": `"flex"`, "temperature": `0.5`, "text": `{"verbosity":"low"}`, "top_logprobs": `3`, "top_p": `0.5`, "truncation": `"auto"`, "user": `"u"`,
}

// What the table says of the members of a request is what happens: those that are carried reach a
// provider of the Responses API with their value, those that are refused get 400 with their name. // P11
func TestMembersOfARequestDoWhatTheTableSays(t *testing.T) {
	NoLeaks(t)
	up := upstreamtest.New(turnpiketest.NewScript(t, "text Hello.\nagain"), upstreamtest.Options{})
	t.Cleanup(up.Close)
	g := MustRun(t, strings.Replace(Site{Upstream: strings.TrimSuffix(up.URL, "/v1")}.Yaml(), "{name: up,", "{name: up, kind: openai-responses,", 1))
	row := memberTable(t)["members of a request"]
	post := func(member string) Answer {
		value := memberValues[member]
		if value == "" {
			t.Fatalf("the test has no value for %s", member)
		}
		return g.Send("POST", "/v1/responses", strings.NewReader(fmt.Sprintf(`{"model":"m","input":"x","tools":[{"type":"function","name":"f"}],%q:%s}`, member, value)))
	}
	for _, member := range row["refused"] {
		e := post(member).Fault(t).Error
		if e.Param == nil || *e.Param != member || e.Type != "invalid_request_error" {
			t.Errorf("%s is not refused: %+v", member, e)
		}
	}
	if n := len(up.Requests()); n != 0 {
		t.Errorf("the provider got %d requests that are refused", n)
	}
	a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","prompt":{"id":"pmpt_1"}}`)) // as the clients send it
	if e := a.Fault(t).Error; e.Param == nil || *e.Param != "prompt" {
		t.Errorf("a prompt without input: %s", a.Body)
	}
	for _, member := range row["carried"] {
		a := post(member)
		if a.Status != 200 || a.Header.Get("Turnpike-Dropped-Params") != "" {
			t.Errorf("%s: %d %s %s", member, a.Status, a.Header.Get("Turnpike-Dropped-Params"), a.Body)
			continue
		}
		all := up.Requests()
		var sent map[string]json.RawMessage
		if err := json.Unmarshal(all[len(all)-1].Body, &sent); err != nil {
			t.Fatal(err)
		}
		if member == "include" { // the gateway asks for its own, too
			if !strings.Contains(string(sent[member]), "reasoning.encrypted_content") {
				t.Errorf("include: the provider got %s", sent[member])
			}
			continue
		}
		if diff := diffOf(generic(memberValues[member]), generic(string(sent[member]))); diff != "" {
			t.Errorf("%s: %s", member, diff)
		}
	}
}

func generic(text string) (v any) {
	_ = json.Unmarshal([]byte(text), &v) // what is no JSON differs from everything
	return v
}

// The other rows: a response has the members that the table says, and no others that the document
// has; parameters are understood; types of tools and input items are taken. // P11
func TestTheRestOfTheAPIDoesWhatTheTableSays(t *testing.T) {
	NoLeaks(t)
	table := memberTable(t)
	p := newPathSite(t, "openai-responses")
	var object map[string]json.RawMessage
	id := p.streamed("stream", p.Respond(`"user":"u","input":"x","stream":true,"tools":[`+p.DocsTool(Never)+`,{"type":"custom","name":"patch"},{"type":"web_search"}]`))
	if err := json.Unmarshal(p.get("/v1/responses/"+id).Body, &object); err != nil {
		t.Fatal(err)
	}
	row := table["members of a response"]
	object["conversation"] = json.RawMessage(`{}`) // only if it has one
	for _, name := range slices.Concat(row["carried"], row["ours"]) {
		if _, is := object[name]; !is {
			t.Errorf("a response has no %s", name)
		}
	}
	for _, name := range row["refused"] {
		if _, is := object[name]; is {
			t.Errorf("a response has %s", name)
		}
	}
	for where, path := range map[string]string{"parameters of a stored response": "/v1/responses/" + id, "parameters of a list of items": "/v1/responses/" + id + "/input_items"} {
		for _, name := range table[where]["ours"] {
			if a := p.get(path + "?" + name + "=-"); a.Status != 400 && name != "after" || name == "after" && a.Status != 404 {
				t.Errorf("%s: %s is not read: %d", where, name, a.Status)
			}
		}
	}
	for _, path := range []string{"/v1/conversations", "/v1/conversations/conv_x/items"} {
		a := p.Send("POST", path, strings.NewReader(`{"items":7}`))
		if e := a.Fault(t).Error; e.Param == nil || *e.Param != "items" {
			t.Errorf("%s: %s", path, a.Body)
		}
	}
	for _, kind := range table["types of tools"]["ours"] {
		if a := p.Respond(`"input":"x","tools":[{"type":"` + kind + `"}]`); a.Status != 400 || !strings.Contains(string(a.Body), `"param":"tools[0]`) {
			t.Errorf("a tool of type %s without a name or a label: %d %s", kind, a.Status, a.Body)
		}
	}
	for _, kind := range table["types of tools"]["carried"] {
		p.Respond(`"input":"x","tool_choice":"none","tools":[{"type":"` + kind + `"}]`)
		if kind != "web_search" && !strings.HasPrefix(kind, "web_search_") && !strings.Contains(p.Asked(), `{"type":"`+kind+`"}`) {
			t.Errorf("the provider did not get the tool %s: %s", kind, p.Asked())
		}
	}
	for _, kind := range table["types of input items"]["carried"] {
		p.Respond(`"input":[{"role":"user","content":"x"},{"type":"` + kind + `","status":"completed","summary":[],"encrypted_content":"E","output":"MARK"},{"role":"assistant","content":"y"},{"role":"user","content":"z"}]`)
		if kind != "web_search_call" && !strings.Contains(p.Asked(), `"type":"`+kind+`"`) {
			t.Errorf("the provider did not get the item %s: %s", kind, p.Asked())
		}
	}
}

// The events that the table lists as ours are sent, and those that it lists as refused never. // P11
func TestEventsAreThoseOfTheTable(t *testing.T) {
	sent := map[string]bool{}
	find := func(pattern string, expression *regexp.Regexp) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, m := range expression.FindAllSubmatch(text, -1) {
				sent[string(m[1])] = true
			}
		}
	}
	find("./*.go", regexp.MustCompile(`"(response\.[a-z_.]+)"`))
	find("../surfacetest/testdata/*.txtar", regexp.MustCompile(`(?m)^event: (response\.[a-z_.]+|error)$`))
	row := memberTable(t)["events"]
	for _, name := range row["ours"] {
		dot := strings.LastIndexByte(name, '.') // what follows it may be the end of an item
		if !sent[name] && !sent[name[:dot+1]] {
			t.Errorf("%s is not sent: %q", name, slices.Sorted(maps.Keys(sent)))
		}
	}
	for _, name := range row["refused"] {
		if sent[name] {
			t.Errorf("%s is sent", name)
		}
	}
}
