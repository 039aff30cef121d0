package admin_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/config"
)

// sample has values of one key, as JSON.
type sample struct {
	good string // not the default
	bad  string
	with map[string]string // other keys of the same map that the good value needs; "" = without the key
}

// sampleOf returns values for the type of a key, as the documentation describes it. It
// fails the test for a new type: add its values here.
func sampleOf(t *testing.T, k config.KeyDoc) sample {
	t.Helper()
	s := sample{with: companions(k.Path)}
	var least, most int
	if item, list := strings.CutPrefix(k.Type, "list of: "); list {
		one := sampleOf(t, config.KeyDoc{Path: k.Path, Type: item})
		s.good, s.bad = "["+one.good+"]", "["+one.bad+"]"
		return s
	}
	if n, _ := fmt.Sscanf(k.Type, "whole number (%d..%d)", &least, &most); n == 2 {
		good := least + 1
		if strconv.Itoa(good) == k.Default {
			good++
		}
		s.good, s.bad = strconv.Itoa(good), strconv.Itoa(most+1)
		return s
	}
	switch k.Path {
	case "routes[].targets":
		s.good, s.bad = `[{"provider":"p","model":"y"}]`, "[]"
		return s
	case "routes[].targets[].provider", "models[].provider":
		s.good, s.bad = `"q"`, `"sample"`
		return s
	case "orgs[].keys[].budgets":
		s.good, s.bad = `[{"period":"month","usd":2.5}]`, `[{"period":"month"}]`
		return s
	case "orgs[].runtime.budgets":
		s.good, s.bad = `[{"scope":"key","period":"month","usd":2.5}]`, `[{"scope":"key","period":"month"}]`
		return s
	}
	if _, name, ofAgent := strings.Cut(k.Path, "orgs[].agents[]."); ofAgent {
		if v, ok := agentSamples()[name]; ok {
			s.good, s.bad = v[0], v[1]
			return s
		}
	}
	if k.Path == "orgs[].runtime.buckets" {
		s.good, s.bad = `[{"name":"b","kind":"disk","max_file_mib":7}]`, `[{"kind":"disk"}]`
		return s
	}
	if _, name, ofHook := strings.Cut(k.Path, "orgs[].runtime.hooks"); ofHook {
		if v, ok := hookSamples()[name]; ok {
			s.good, s.bad = v[0], v[1]
			return s
		}
	}
	if v, ok := builtinSamples()[strings.TrimPrefix(k.Path, "orgs[].runtime.builtin_tools")]; ok && strings.HasPrefix(k.Path, "orgs[].runtime.builtin_tools") {
		s.good, s.bad = v[0], v[1]
		return s
	}
	if v, ok := databaseSamples()[strings.TrimPrefix(k.Path, "orgs[].runtime.databases")]; ok && strings.HasPrefix(k.Path, "orgs[].runtime.databases") {
		s.good, s.bad = v[0], v[1]
		return s
	}
	if v, ok := webSamples()[strings.TrimPrefix(k.Path, "orgs[].runtime.")]; ok {
		s.good, s.bad = v[0], v[1]
		return s
	}
	if strings.HasPrefix(k.Type, "duration ") {
		s.good, s.bad = `"1m30s"`, `"9999h"`
		return s
	}
	values := map[string][2]string{
		"host:port":                              {`"127.0.0.1:9"`, `"nowhere"`},
		"host name":                              {`"gw.example.com"`, `"GW:1"`},
		"origin such as https://app.example.com": {`"https://app.example.com"`, `"https://app.example.com/x"`},
		"directory":                              {`"/elsewhere"`, `"a\u0001"`},
		"file":                                   {`"/elsewhere"`, `"a\u0001"`},
		"env:NAME, file:PATH or a literal":       {`"env:SAMPLE"`, `"env:not a name"`},
		"name":                                   {`"sample"`, `"a b"`},
		"schema":                                 {`"sample"`, `"a b"`},
		"header name":                            {`"X-Sample"`, `"a b"`},
		"region":                                 {`"sample"`, `"a b"`},
		"version":                                {`"sample"`, `"a b"`},
		"event or pattern such as budget.*":      {`"run.waiting"`, `"sample"`},
		"function name":                          {`"sample"`, `"a b"`},
		"prefix such as turnpike/":               {`"sample/"`, `"/sample"`},
		"bucket name":                            {`"sample"`, `"a/b"`},
		"reference such as secret:NAME":          {`"secret:sample"`, `"sample"`},
		"JSON Schema of an object, as a map":     {`{"type":"object","properties":{"a":{"type":"string"}}}`, `{"type":"string"}`},
		"prefix":                                 {`"sample"`, `"a b"`},
		"model name or glob":                     {`"sample"`, `"a b"`},
		"model name":                             {`"sample"`, `"a b"`},
		"tool name":                              {`"sample"`, `"a b"`},
		"tool name or glob":                      {`"sample*"`, `"[a"`},
		"text":                                   {`"sample"`, `"a\u0001"`},
		"http or https URL":                      {`"http://127.0.0.1:65009/sample"`, `"ftp://h"`},
		"CIDR such as 10.0.0.0/8":                {`"10.0.0.0/8"`, `"10.1.2.3/8"`},
		"TYPE=TOOL":                              {`"web_search=sample"`, `"web_search"`},
		"true or false":                          {strconv.FormatBool(k.Default != "true"), `"maybe"`},
		`"*" or list of tool names`:              {`["sample"]`, `"sample"`},
		`"*" or list of server names`:            {`["sample"]`, `["a b"]`},
		`"*" or list of org ids`:                 {`["sample"]`, `["a b"]`},
		`"*" or list of globs`:                   {`["sample*"]`, `["[a"]`},
		"time such as 2027-01-31T18:00:00Z":      {`"2027-01-31T18:00:00Z"`, `"2027-01-31"`},
		"read_only, all or list of tool names":   {`["sample"]`, `"sample"`},
		"never, always, writes or map of rules":  {`"always"`, `"sample"`},
		"map of variable names to text, with at most one reference, at its end": {`{"A":"b"}`, `{"a b":"c"}`},
		"map of header names to text, with at most one reference, at its end":   {`{"X-A":"b"}`, `{"a b":"c"}`},
		"US dollars above 0, with at most 9 decimals":                           {"2.5", "0"},
		"US dollars from 0, with at most 9 decimals":                            {"2.5", "-1"},
		"map of tool names to US dollars from 0, with at most 9 decimals":       {`{"sample":0.5}`, `{"sample":-1}`},
		"map":          {"{}", `"sample"`},
		"list of maps": {"[]", `"sample"`},
	}
	values["driver"] = [2]string{`"quickjs"`, `"sample"`}
	values["SHA-256"] = [2]string{`"` + strings.Repeat("0a", 32) + `"`, `"sample"`}
	if v, ok := values[k.Type]; ok {
		s.good, s.bad = v[0], v[1]
		return s
	}
	words := regexp.MustCompile(`, | or `).Split(k.Type, -1)
	i := slices.IndexFunc(words, func(w string) bool { return w != k.Default && !slices.Contains(k.Unbuilt, w) })
	if len(words) < 2 || slices.ContainsFunc(words, func(w string) bool { return strings.ContainsAny(w, " ()") }) {
		t.Fatalf("%s: no samples of the type %q", k.Path, k.Type)
	}
	s.good, s.bad = strconv.Quote(words[max(i, 0)]), `"sample"`
	return s
}

// webSamples returns values of the keys of the tools for the web.
func webSamples() map[string][2]string {
	return map[string][2]string{
		"web":                 {`{"search":{"provider":"exa"},"scrape":{"provider":"own"},"http_hosts":["*"],"http_methods":["GET"]}`, `"sample"`},
		"web.search.provider": {`"duckduckgo"`, `"sample"`},
		"web.search.api_key":  {`"secret:sample"`, `"env:SAMPLE"`},
		"web.http_hosts":      {`"*.example.com"`, `"a.*"`},
		"web.http_methods":    {`"GET"`, `"TRACE"`},
	}
}

// hookSamples returns values of the keys of hooks, by what follows the path of the list.
func hookSamples() map[string][2]string {
	return map[string][2]string{
		"":                            {`[{"id":"h","event":"PreToolUse","type":"approval","keys":"*","enabled":true,"position":0,"config":{"timeout":"0s","include_run_context":false}}]`, `[{"id":"h"}]`},
		"[].event":                    {`"PreToolUse"`, `"sample"`},
		"[].type":                     {`"rule"`, `"sample"`},
		"[].matcher":                  {`"sample_*"`, `"["`},
		"[].keys":                     {`["sample"]`, `["a b"]`},
		"[].config.condition":         {`"b IN [2]"`, `"b LIKE 2"`},
		"[].config.rules":             {`[{"condition":"b IN [2]"}]`, `"sample"`},
		"[].config.rules[].condition": {`"b IN [2]"`, `"b LIKE 2"`},
		"[].config.url":               {`"https://example.com/other"`, `"ftp://h"`},
		"[].config.secret":            {`"secret:sample"`, `"env:SAMPLE"`},
		"[].config.timeout":           {`"2s"`, `"9999h"`},
		"[].config.on_error":          {`"deny"`, `"sample"`},
	}
}

// agentSamples returns values of the keys of agents, by their names in an agent.
func agentSamples() map[string][2]string {
	out := map[string][2]string{
		"system_prompt":                             {`"sample"`, "1"},
		"settings.temperature":                      {"1.5", "3"},
		"tools[].config_override.rules":             {`[{"condition":"b IN [2]"}]`, `"sample"`},
		"tools[].config_override.rules[].condition": {`"b IN [2]"`, `"b LIKE 2"`},
		"tools[].config_override.schemas":           {`{"shop":["orders"],"stock":[]}`, `{"pg_catalog":[]}`},
		"mcp_servers[].transport":                   {`"http"`, `"sample"`},
		"hooks[].matcher":                           {`"sample_*"`, `"a b"`},
	}
	for name, v := range hookSamples() {
		if inside := "hooks" + name; name != "" && name != "[].keys" && name != "[].config.timeout" && name != "[].matcher" {
			out[inside] = v
		}
	}
	return out
}

// agentWith returns an agent that may have the key at the path.
func agentWith(path string) map[string]any {
	hook := hookWith(path)
	delete(hook, "id")
	switch name := path[strings.LastIndex(path, ".")+1:]; name {
	case "headers", "timeout_seconds":
		hook["type"], hook["config"] = "http", map[string]any{"url": "https://example.com/"}
	case "timeout":
		hook["type"], hook["config"] = "approval", map[string]any{}
	}
	name := "t"
	if strings.HasSuffix(path, ".schemas") {
		name = "database_query"
	}
	tool := map[string]any{"name": name, "config_override": map[string]any{"rules": []any{map[string]any{"condition": "a IN [1]"}}}}
	return map[string]any{
		"name": "g", "model": "m", "tools": []any{tool}, "hooks": []any{hook}, "mcp_servers": []any{map[string]any{"name": "s", "url": "http://127.0.0.1:65009/"}},
	}
}

// builtinSamples returns values of the keys of built-in tools, by what follows the path of the list.
func builtinSamples() map[string][2]string {
	return map[string][2]string{
		"":                    {`[{"name":"web_search","enabled":true,"hosted":false,"max_uses":3}]`, `[{"name":"grep"}]`},
		"[].name":             {`"http_request"`, `"grep"`},
		"[].enabled":          {`false`, `"sometimes"`},
		"[].require_approval": {`"always"`, `"sometimes"`},
		"[].hosted":           {`true`, `"sometimes"`},
		"[].price_usd":        {`0.25`, `-1`},
		"[].max_uses":         {`3`, `-1`},
	}
}

// databaseSamples returns values of the keys of databases, by what follows the path of the list.
func databaseSamples() map[string][2]string {
	return map[string][2]string{
		"":                     {`[{"name":"d","url":"secret:d","schemas":[],"statement_timeout":"10s"}]`, `[{"name":"d"}]`},
		"[].url":               {`"secret:other"`, `"https://example.com/"`},
		"[].write_url":         {`"secret:writer"`, `"https://example.com/"`},
		"[].schemas":           {`"stock"`, `"a.b.c"`},
		"[].statement_timeout": {`"30s"`, `"9999h"`},
	}
}

// hookWith returns a hook that may have the key at the path.
func hookWith(path string) map[string]any {
	config := map[string]any{"condition": "a IN [1]"}
	kind := "rule"
	switch name := path[strings.LastIndex(path, ".")+1:]; {
	case name == "config":
		config, kind = map[string]any{}, "approval"
	case strings.Contains(path, "config.rules"):
		config = map[string]any{"rules": []any{map[string]any{"condition": "a IN [1]"}}}
	case name == "url" || name == "secret" || name == "timeout" || name == "on_error" || name == "include_run_context":
		config, kind = map[string]any{"url": "https://example.com/"}, "http"
	}
	return map[string]any{"id": "h", "event": "PreToolUse", "type": kind, "config": config}
}

// bucketWith returns a bucket that may have the key at the path.
func bucketWith(path string) map[string]any {
	switch path[strings.LastIndex(path, ".")+1:] {
	case "endpoint", "region", "bucket", "prefix", "access_key", "secret_key":
		return map[string]any{"name": "b", "kind": "s3", "bucket": "other", "access_key": "secret:other", "secret_key": "secret:other"}
	}
	return map[string]any{"name": "b"}
}

// companions are the keys that a key needs beside it.
func companions(path string) map[string]string {
	if inside, ofAgent := strings.CutPrefix(path, "orgs[].agents[].mcp_servers[].config."); ofAgent { // the same keys
		path = "orgs[].mcp_servers[]." + inside
	}
	if inside, shared := strings.CutPrefix(path, "mcp_servers[]."); shared { // the same keys
		path = "orgs[].mcp_servers[]." + inside
	}
	switch path {
	case "orgs[].keys[].burst", "orgs[].runtime.burst":
		return map[string]string{"requests_per_minute": "5"}
	case "orgs[].runtime.enable_search":
		return map[string]string{"web": `{"search":{"provider":"duckduckgo"}}`}
	case "orgs[].runtime.web.scrape.url":
		return map[string]string{"provider": `"firecrawl"`}
	case "orgs[].mcp_servers[].prefix":
		return map[string]string{"naming": `"prefixed"`}
	case "orgs[].mcp_servers[].command":
		return map[string]string{"url": ""}
	case "orgs[].mcp_servers[].env":
		return map[string]string{"url": "", "command": `["program"]`}
	case "orgs[].mcp_servers[].keyed":
		return map[string]string{"reads": "[]"}
	case "providers[].default_max_tokens":
		return map[string]string{"kind": `"anthropic"`}
	case "providers[].api_version":
		return map[string]string{"kind": `"gemini"`}
	case "providers[].region":
		return map[string]string{"kind": `"bedrock"`, "api_key": `"env:SAMPLE_2"`, "base_url": `"http://127.0.0.1:9"`}
	case "providers[].access_key_id", "providers[].secret_access_key", "providers[].session_token":
		return map[string]string{"kind": `"bedrock"`, "region": `"us-east-1"`, "access_key_id": `"env:SAMPLE_2"`, "secret_access_key": `"env:SAMPLE_2"`}
	case "tool_dispatch_secret", "tool_dispatch_timeout", "tool_dispatch_tools":
		return map[string]string{"tool_dispatch_url": `"http://127.0.0.1:65009/"`}
	case "sandbox.drivers":
		return map[string]string{"url": `"http://127.0.0.1:9"`}
	case "sandbox.shell":
		return map[string]string{"drivers": `["bwrap"]`}
	case "orgs[].runtime.buckets[].kind":
		return map[string]string{"bucket": `"other"`, "access_key": `"secret:other"`, "secret_key": `"secret:other"`}
	case "database":
		return map[string]string{"master_key": `"env:SAMPLE_2"`}
	case "postgres.pooler":
		return map[string]string{"migrate": `"never"`}
	case "postgres.listen_url":
		return map[string]string{"pooler": `"prepared"`, "migrate": `"never"`}
	case "postgres.lock_timeout":
		return map[string]string{"statement_timeout": `"10m"`}
	case "master_key_previous":
		return map[string]string{"master_key": `"env:SAMPLE_2"`}
	}
	return nil
}

// fileWith returns a configuration with the value at the path of a key.
func fileWith(t *testing.T, path, value string, with map[string]string) []byte {
	t.Helper()
	var file map[string]any
	const base = `{"providers":[{"name":"p"},{"name":"q"}],"mcp_servers":[{"name":"z","url":"http://127.0.0.1:65009/","orgs":"*"}],"orgs":[{"id":"a","runtime":{},` +
		`"keys":[{"name":"k","key":"env:K"}],"mcp_servers":[{"name":"s","url":"http://127.0.0.1:65009/"}],"http_tools":[{"name":"t","description":"d","url":"http://127.0.0.1:65009/"}],"webhooks":[{"name":"w","url":"http://127.0.0.1:65009/","secret":"env:SAMPLE_2"}]}]}`
	if err := json.Unmarshal([]byte(base), &file); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(path, "routes[]") {
		file["routes"] = []any{map[string]any{"model": "r", "strategy": "weighted", "targets": []any{
			map[string]any{"provider": "p", "model": "x"}, map[string]any{"provider": "p", "model": "z"},
		}}}
	}
	if strings.HasPrefix(path, "postgres") || strings.HasPrefix(path, "replica") {
		file["database"], file["master_key"] = "env:SAMPLE", "env:SAMPLE_2"
	}
	if strings.HasPrefix(path, "models[]") {
		file["models"] = []any{map[string]any{"model": "m", "context_window": 1_000_000_000, "max_input_tokens": 512}}
	}
	if strings.Contains(path, ".budgets[]") {
		one := file["orgs"].([]any)[0].(map[string]any)
		holder := one["runtime"]
		if strings.Contains(path, ".keys[].") {
			holder = one["keys"].([]any)[0]
		}
		holder.(map[string]any)["budgets"] = []any{map[string]any{"period": "month", "usd": 7, "tokens": 7}}
	}
	switch {
	case strings.HasPrefix(path, "orgs[].agents[]"):
		file["master_key"] = "env:SAMPLE_2"
		file["orgs"].([]any)[0].(map[string]any)["agents"] = []any{agentWith(path)}
	case strings.Contains(path, ".builtin_tools[]"):
		file["orgs"].([]any)[0].(map[string]any)["runtime"].(map[string]any)["builtin_tools"] = []any{map[string]any{"name": "web_search"}}
	case strings.Contains(path, ".hooks[]"):
		file["orgs"].([]any)[0].(map[string]any)["runtime"].(map[string]any)["hooks"] = []any{hookWith(path)}
	}
	if path == "orgs[].runtime.enable_code_execution" {
		file["sandbox"] = map[string]any{"drivers": []any{"quickjs"}}
	}
	if strings.Contains(path, ".buckets[]") {
		file["orgs"].([]any)[0].(map[string]any)["runtime"].(map[string]any)["buckets"] = []any{bucketWith(path)}
	}
	if strings.Contains(path, ".databases[]") {
		file["orgs"].([]any)[0].(map[string]any)["runtime"].(map[string]any)["databases"] = []any{map[string]any{"name": "d", "url": "secret:d"}}
	}
	parts := strings.Split(path, ".")
	inside := file
	for _, part := range parts[:len(parts)-1] {
		name, list := strings.CutSuffix(part, "[]")
		if list {
			inside = inside[name].([]any)[0].(map[string]any)
			continue
		}
		if inside[name] == nil {
			inside[name] = map[string]any{}
		}
		inside = inside[name].(map[string]any)
	}
	set := func(name, value string) {
		if delete(inside, name); value != "" {
			inside[name] = json.RawMessage(value)
		}
	}
	for name, value := range with {
		set(name, value)
	}
	if value != "" {
		set(parts[len(parts)-1], value)
	}
	text, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// neededKind matches the documentation of keys that only an unbuilt kind of provider has.
var neededKind = regexp.MustCompile(`^Only for (\w+), which is not built yet\.`)

// Every key of the table, with a good, a bad and an unbuilt value: in the file, as a
// variable, and in the documentation. TestEveryKeyOfTheTableOverTheAPI has the
// management API. A new key fails here until it is complete. // C19
func TestEveryKeyOfTheTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range config.Keys() {
		t.Run(k.Path, func(t *testing.T) {
			s := sampleOf(t, k)
			if k.Doc == "" || !strings.Contains(string(page), "| `"+k.Path[strings.LastIndex(k.Path, ".")+1:]+"` |") {
				t.Errorf("docs/configuration.md does not document it: go test ./docs -run Configuration -update")
			}
			checkRefused(t, k, s.bad, s.with, "")
			if only := neededKind.FindStringSubmatch(k.Doc); only != nil {
				checkRefused(t, k, s.good, map[string]string{"kind": strconv.Quote(only[1])}, "not built yet")
				return
			}
			if slices.Contains(k.Unbuilt, "*") {
				if !strings.Contains(k.Path, "require_approval.") {
					checkRefused(t, k, s.good, s.with, "not built yet")
				}
				return
			}
			for _, word := range k.Unbuilt {
				value := strconv.Quote(word)
				if strings.HasPrefix(k.Type, "list") {
					value = "[" + value + "]"
				}
				checkRefused(t, k, value, s.with, word+" is not built yet")
			}
			if strings.Contains(k.Path, "require_approval.") { // need each other: see TestRulesSelectTheCallsThatWait
				return
			}
			checkGood(t, k, s)
		})
	}
}

// checkRefused fails the test unless the file and the variable of the key refuse the
// value with a message that has the text.
func checkRefused(t *testing.T, k config.KeyDoc, value string, with map[string]string, text string) {
	t.Helper()
	refused := func(file []byte, variables map[string]string) {
		t.Helper()
		_, err := config.Parse("f", file, lookup(variables))
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(withoutIndexes(err.Error()), k.Path) && text == "" {
			t.Errorf("%s with %s %v: %v", k.Path, value, variables, err)
		}
	}
	refused(fileWith(t, k.Path, value, with), nil)
	if k.Env != "" {
		refused(fileWith(t, k.Path, "", with), map[string]string{k.Env: asVariable(t, value)})
	}
}

// checkGood fails the test unless the value reaches the configuration from the file,
// and the same value from the variable.
func checkGood(t *testing.T, k config.KeyDoc, s sample) {
	t.Helper()
	parse := func(file []byte, variables map[string]string) *config.Config {
		t.Helper()
		c, err := config.Parse("f", file, lookup(variables))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	without := s.with
	if strings.HasSuffix(k.Path, "mcp_servers[].command") { // or the server has no way to reach it
		without = map[string]string{"url": "", "command": `["other"]`}
	}
	if strings.HasSuffix(k.Path, "buckets[].kind") { // the others are only for s3
		without = nil
	}
	c := parse(fileWith(t, k.Path, s.good, s.with), nil)
	changes := config.Changes(parse(fileWith(t, k.Path, "", without), nil), c)
	want := k.Path
	if list, _, inside := strings.Cut(want, ".budgets[]."); inside { // the management API writes the list as a whole, so that it is compared as a whole
		want = list + ".budgets"
	}
	if list, _, inside := strings.Cut(want, ".hooks[]."); inside {
		want = list + ".hooks"
	}
	if list, _, inside := strings.Cut(want, ".builtin_tools[]."); inside {
		want = list + ".builtin_tools"
	}
	if list, _, inside := strings.Cut(want, ".config_override.rules[]."); inside {
		want = list + ".config_override.rules"
	}
	if list, _, inside := strings.Cut(want, ".buckets[]."); inside {
		want = list + ".buckets"
	}
	if list, _, inside := strings.Cut(want, ".databases[]."); inside {
		want = list + ".databases"
	}
	switch {
	case strings.HasPrefix(k.Type, "map") && (s.good == "{}" || strings.HasSuffix(k.Path, ".web")), k.Type == "list of maps" && s.good == "[]", k.Required, strings.HasPrefix(k.Path, "routes[].targets"), strings.HasSuffix(k.Path, ".transport"): // has no value of its own, or one only, or is the name of its map
	case len(changes) != 1 || withoutIndexes(changes[0].Path) != want || changes[0].Live != k.Live:
		t.Errorf("with %s, %+v changes, want only %s (live %v)", s.good, changes, want, k.Live)
	}
	if k.Env != "" {
		from := parse(fileWith(t, k.Path, "", s.with), map[string]string{k.Env: asVariable(t, s.good)})
		if changes := config.Changes(c, from); changes != nil {
			t.Errorf("%s=%s differs from the file: %v", k.Env, asVariable(t, s.good), changes)
		}
	}
}

func lookup(variables map[string]string) config.Environment {
	return func(name string) (string, bool) { v, ok := variables[name]; return v, ok }
}

// asVariable returns the text of a variable for a value in JSON.
func asVariable(t *testing.T, value string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(value), &v); err != nil {
		t.Fatal(err)
	}
	if list, ok := v.([]any); ok {
		var all []string
		for _, item := range list {
			all = append(all, fmt.Sprint(item))
		}
		return strings.Join(all, ",")
	}
	if n, ok := v.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}

// withoutIndexes turns orgs[0].id and orgs[acme].id into orgs[].id.
func withoutIndexes(path string) string {
	return regexp.MustCompile(`\[[\w-]+\]`).ReplaceAllString(path, "[]")
}

// Every setting of an org's runs and of its servers over the management API, with a
// good, a bad and an unbuilt value, and after a restart. // C19 D18
func TestEveryKeyOfTheTableOverTheAPI(t *testing.T) {
	NoLeaks(t)
	data := NewData(t)
	yaml := "operator_key: operator-key\nsandbox: {drivers: [remote], url: 'http://127.0.0.1:9'}\n" + strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.Yaml(), "    runtime: {}\n", "", 1)
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	d.Do("POST", "/api/mcp-servers", "owner-key", `{"name":"s","url":"http://127.0.0.1:65009/mcp","enabled":false}`, 201)
	for _, part := range []struct {
		at, path string
		of       func(answer map[string]any) map[string]any
	}{
		{"orgs[].runtime.", "/api/org/runtime", func(a map[string]any) map[string]any { return a["runtime"].(map[string]any) }},
		{"orgs[].mcp_servers[].", "/api/mcp-servers/s", func(a map[string]any) map[string]any { return a }},
	} {
		for _, k := range config.Keys() {
			name, inside := strings.CutPrefix(k.Path, part.at)
			if !inside || strings.Contains(name, ".") || name == "name" {
				continue
			}
			s := sampleOf(t, k)
			if name == "enabled" { // it is false: nothing is connected to
				s.good = "false"
			}
			if name == "compaction_model" { // which must be one of the gateway
				s.good = `"m"`
			}
			patch := func(value string, want int) (map[string]any, string) {
				body := map[string]string{name: value}
				for other, v := range s.with {
					if v == "" {
						v = "null"
					}
					body[other] = v
				}
				a := d.Do("PATCH", part.path, "owner-key", Object(body), want)
				return a, fmt.Sprint(a["error"])
			}
			switch {
			case k.FileOnly:
				if _, message := patch(s.good, 422); !strings.Contains(message, "can only be set in the configuration file") && !strings.Contains(message, "url: is missing") {
					t.Errorf("%s: %s", k.Path, message)
				}
				continue
			case k.Unbuilt != nil:
				if _, message := patch(s.good, 422); !strings.Contains(message, "not built yet") {
					t.Errorf("%s: %s", k.Path, message)
				}
				continue
			}
			if a, _ := patch(s.good, 200); !sameJSON(t, part.of(a)[name], s.good) {
				t.Errorf("%s was set to %s and is %v", k.Path, s.good, part.of(a)[name])
			}
			if _, message := patch(s.bad, 422); !strings.Contains(message, name) {
				t.Errorf("%s: %s", k.Path, message)
			}
		}
	}
	before := []map[string]any{d.Do("GET", "/api/org", "owner-key", "", 200), d.Do("GET", "/api/mcp-servers/s", "owner-key", "", 200)}
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	d = Manage(MustRunIn(t, data, yaml, Environment()))
	after := []map[string]any{d.Do("GET", "/api/org", "owner-key", "", 200), d.Do("GET", "/api/mcp-servers/s", "owner-key", "", 200)}
	if fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("after a restart\n%v\nwant\n%v", after, before)
	}
}

func sameJSON(t *testing.T, got any, want string) bool {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(want), &v); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(got) == fmt.Sprint(v)
}
