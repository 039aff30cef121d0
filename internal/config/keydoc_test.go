package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func TestEveryKeyIsDocumentedOnce(t *testing.T) {
	documented := map[string]bool{}
	for _, k := range Keys() {
		if k.Doc == "" || k.Type == "" || k.Default == "" {
			t.Errorf("%s lacks a word: %+v", k.Path, k)
		}
		if documented[k.Path] {
			t.Errorf("%s is documented twice", k.Path)
		}
		documented[k.Path] = true
	}
}

// Every setting of a struct has exactly one key, and every key a field: a setting
// cannot be added to a type and forgotten in the table.
func TestEveryFieldHasAKey(t *testing.T) {
	var (
		c      Config
		p      Provider
		r      Route
		rt     RouteTarget
		mo     Model
		o      Org
		k      Key
		m      org.MCPServer
		a      org.Approval
		f      org.ToolFilter
		b      org.Budget
		h      org.Hook
		hr     org.HookRule
		bu     org.Bucket
		bt     org.BuiltinTool
		db     org.Database
		w      Webhook
		ht     org.HTTPTool
		ag     Agent
		at     AgentTool
		as     AgentServer
		ah     AgentHook
		tables = []struct {
			of   any
			keys []key
			but  []string // fields that are no settings
		}{
			{&c, c.keys(), []string{"Warnings", "RateRows", "Replica"}},
			{&p, p.keys(), nil},
			{&r, r.keys(), nil},
			{&rt, rt.keys(), nil},
			{&mo, mo.keys(), nil},
			{&o, o.keys(), []string{"Runtime.Agents"}},
			{&k, k.keys(), []string{"Makers"}},
			{&m, serverKeys(&m), []string{"Org", "FromFile", "Shared", "UnknownSettings", "Position", "CreatedAt", "UpdatedAt"}},
			{&a, approvalKeys(&a), []string{"Mode"}},
			{&f, filterKeys(&f), nil},
			{&b, budgetKeys(&b), nil},
			{&h, hookKeys(&h), []string{"Agent", "Offered"}},
			{&hr, hookRuleKeys(&hr), nil},
			{&bu, bucketKeys(&bu), nil},
			{&bt, builtinKeys(&bt), nil},
			{&db, databaseKeys(&db), []string{"FromFile"}},
			{&w, w.keys(), nil},
			{&ht, httpToolKeys(&ht), []string{"Org"}},
			{&ag, ag.keys(), nil},
			{&at, agentToolKeys(&at), nil},
			{&as, agentServerKeys(&as), []string{"Settings"}}, // as serverKeys
			{&ah, agentHookKeys(&ah), nil},
		}
		keys, number = 0, len(Keys())
	)
	for _, f := range reflect.VisibleFields(reflect.TypeFor[agent.Definition]()) {
		if !reflect.ValueOf(ag).FieldByName(f.Name).IsValid() {
			t.Errorf("%s of agents cannot be set in the configuration", f.Name)
		}
	}
	for _, table := range tables {
		places := placesOf(table.keys)
		keys += len(places)
		checkFields(t, reflect.ValueOf(table.of).Elem(), places, table.but)
	}
	// Maps of known keys have no place of their own; filterKeys, with two keys, and periodKeys, with three, are there twice.
	// Agents have approvalKeys with filterKeys once more (6), and hookRuleKeys twice (4).
	for _, doc := range Keys() {
		if strings.HasPrefix(doc.Path, "mcp_servers[].") { // those of orgs[].mcp_servers[], and orgs
			number--
		} else if doc.Type == "map" && !strings.Contains(doc.Path, "require_approval") {
			number--
		}
	}
	if number -= 2 + 3 + 6 + 4; keys != number {
		t.Errorf("the tables have %d keys, and %d are documented", keys, number)
	}
}

// placesOf returns where the values of the keys go.
func placesOf(keys []key) (places []uintptr) {
	for _, k := range keys {
		if inside, ok := k.value.(configObject); ok {
			places = append(places, placesOf(inside.keys)...)
			continue
		}
		if inside, ok := k.value.(object); ok {
			places = append(places, placesOf(inside.keys)...)
			continue
		}
		places = append(places, reflect.ValueOf(k.value).FieldByName("into").Pointer())
	}
	return places
}

// checkFields fails the test for a field that no key fills, or two.
func checkFields(t *testing.T, v reflect.Value, places []uintptr, but []string) {
	t.Helper()
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() || slices.Contains(but, name) || slices.Contains(but, v.Type().Name()+"."+name) {
			continue
		}
		here, inside := 0, 0
		for _, at := range places {
			start := field.Addr().Pointer()
			if at == start {
				here++
			}
			if at >= start && at < start+field.Type().Size() {
				inside++
			}
		}
		switch {
		case here == 1 && inside == 1:
		case field.Kind() == reflect.Struct && inside > 0:
			checkFields(t, field, places, but)
		default:
			t.Errorf("%s.%s has %d keys, want 1", v.Type(), name, inside)
		}
	}
}

func TestKeyDocsSayWhatTheParserDoes(t *testing.T) {
	docs := map[string]KeyDoc{}
	for _, k := range Keys() {
		docs[k.Path] = k
	}
	for path, want := range map[string]KeyDoc{
		"listen":                           {Type: "host:port", Default: "127.0.0.1:8080", Env: "TURNPIKE_LISTEN"},
		"max_rounds_cap":                   {Type: "whole number (1..256)", Default: "50; 256 rounds of tools where a switch runs the agent loop", Env: "TURNPIKE_MAX_ROUNDS_CAP"},
		"outbound.ssrf.block_ula_v6":       {Type: "true or false", Default: "true", Env: "TURNPIKE_OUTBOUND_SSRF_BLOCK_ULA_V6"},
		"outbound.ssrf.allowlist_cidrs":    {Type: "list of: CIDR such as 10.0.0.0/8", Default: "[]", Env: "TURNPIKE_OUTBOUND_SSRF_ALLOWLIST_CIDRS"},
		"orgs[].id":                        {Type: "name", Default: "required", Required: true},
		"orgs[].runtime.max_rounds":        {Type: "whole number (1..256)", Default: "the surface's own"},
		"orgs[].runtime.catalog_ttl":       {Type: "duration (0s..24h)", Default: "10m"},
		"orgs[].runtime.on_limit":          {Type: "stop, answer or pause", Default: "the surface's own"},
		"orgs[].mcp_servers[].tools":       {Type: `"*" or list of tool names`, Default: `"*"`},
		"orgs[].mcp_servers[].max_retries": {Type: "whole number (0..10)", Default: "2"},
		"providers[].models":               {Type: "list of: model name or glob", Default: "[*]"},
	} {
		got := docs[path]
		got.Path, got.Doc, got.Live = "", "", false // TestKeyDocsSayWhatNeedsARestart
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestDurationsReadLikeThoseOfTheFile(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "30s": 30 * time.Second, "2m": 2 * time.Minute, "1h": time.Hour, "1h5m": 65 * time.Minute, "1m10s": 70 * time.Second, "10m": 10 * time.Minute} {
		if got := showDuration(d); got != want {
			t.Errorf("%v reads %s, want %s", d, got, want)
		}
	}
}
