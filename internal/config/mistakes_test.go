package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMistakes holds the exact words of every kind of refusal.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct{ file, want string }{
		"no YAML":                   {"listen: [a", "t.yaml:1:9: is not YAML: sequence end token ']' not found"},
		"a line that a tab indents": {"orgs:\n\t- id: a", "t.yaml:2:1: is not YAML: a tab cannot indent a line; use spaces"},
		"a line that is indented too little": {"orgs:\n  - id: a\n   keys: []", "t.yaml:3:4: is not YAML: value is not allowed in this " +
			"context; is the line indented like the lines around it?"},
		"a key without a space after it": {"providers:\n  - name: a\n    kind:demo\n", "t.yaml:3:5: is not YAML: non-map value is " +
			"specified; want a space after the colon of each key"},
		"a variable of the shell": {"operator_key: ${KEY}", "t.yaml:1:15: operator_key: ${KEY} is not replaced in this file; write " +
			"env:KEY instead, at the end of the value"},
		"a dispatch secret without a URL":  {"tool_dispatch_secret: env:S", "t.yaml:1:23: tool_dispatch_secret: needs tool_dispatch_url"},
		"a dispatch timeout without a URL": {"tool_dispatch_timeout: 5s", "t.yaml:1:24: tool_dispatch_timeout: needs tool_dispatch_url"},
		"a dispatch without tools": {"tool_dispatch_url: http://a.example/\ntool_dispatch_tools: []", "t.yaml:2:22: " +
			"tool_dispatch_tools: is empty, so nothing would be sent to tool_dispatch_url; list tool names, or remove tool_dispatch_url"},
		"auto and another driver": {"sandbox: {drivers: [auto, wasm]}", "t.yaml:1:20: sandbox.drivers: has auto beside other " +
			"drivers; list auto alone, or the drivers that you want"},
		"a remote sandbox without a URL": {"sandbox: {drivers: [remote]}", "t.yaml:1:20: sandbox.drivers: has remote without sandbox.url; " +
			"set it, or remove remote"},
		"an unknown driver": {"sandbox: {drivers: [docker]}", "t.yaml:1:21: sandbox.drivers[0]: \"docker\" is not allowed; " +
			"want quickjs, wasm, bwrap, landlock, remote or auto"},
		"a digest that is none": {"sandbox: {python_wasm_sha256: xyz}", "t.yaml:1:31: sandbox.python_wasm_sha256: \"xyz\" is not " +
			"64 lower-case hexadecimal digits"},
		"a list instead of a file": {"- a", "t.yaml:1:1: found a list, want a map with listen, public_hosts, public_url, " +
			"allowed_origins, max_connections, max_requests, max_retained_mib, max_retained_run_mib, max_relay_body_mib, max_spool_mib, " +
			"max_followers_per_run, data, database, postgres, replica, redis, clickhouse, max_rounds_cap, org_caps, operator_key, master_key, " +
			"master_key_previous, cache_pepper, providers, routes, models, compaction, tool_dispatch_url, tool_dispatch_secret, " +
			"tool_dispatch_timeout, tool_dispatch_tools, rates, outbound, audit, log, runs, min_free_disk_mib, telemetry, sandbox, mcp_servers, " +
			"orgs"},
		"a second document":                   {"data: a\n---\ndata: b", "t.yaml:3:1: starts a second document; want one"},
		"an unknown key near a known one":     {"listn: x", "t.yaml:1:1: listn: unknown key; did you mean listen?"},
		"an unknown key near none":            {"outbound: {ssrf: {}, firewall: on}", "t.yaml:1:22: outbound.firewall: unknown key; known here: ssrf"},
		"a key given twice":                   {"data: a\ndata: b", "t.yaml:2:1: data: is given twice; the first is in line 1"},
		"nothing where text is wanted":        {"listen:", "t.yaml:1:1: listen: found nothing, want host:port"},
		"a number where text is wanted":       {"data: 7", "t.yaml:1:7: data: found the number 7, want directory (put it in quotes)"},
		"a port alone":                        {"listen: 8080", "t.yaml:1:9: listen: found the number 8080, want host:port (put it in quotes)"},
		"a public name with a port":           {"public_hosts: [gw.example.com:443, GW]", "t.yaml:1:16: public_hosts[0]: \"gw.example.com:443\" is not a host name in lower case, without a port; want ^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$\nt.yaml:1:36: public_hosts[1]: \"GW\" is not a host name in lower case, without a port; want ^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"},
		"a site with a path":                  {"allowed_origins: ['https://a.example/']", `t.yaml:1:19: allowed_origins[0]: "https://a.example/" is not an origin such as https://app.example.com`},
		"a listen address for everybody":      {`listen: ":8080"`, `t.yaml:1:9: listen: ":8080" has no host; want 127.0.0.1:8080, or 0.0.0.0:8080 to be reached from everywhere`},
		"a port that is none":                 {"listen: a:99999", `t.yaml:1:9: listen: "a:99999" is not host:port, such as 127.0.0.1:8080`},
		"text where a number is wanted":       {"max_rounds_cap: ten", `t.yaml:1:17: max_rounds_cap: found text "ten", want a whole number (1..256)`},
		"a fraction where a number is wanted": {"max_rounds_cap: 1.5", "t.yaml:1:17: max_rounds_cap: found the number 1.5, want a whole number (1..256)"},
		"a number out of range":               {"max_rounds_cap: 257", "t.yaml:1:17: max_rounds_cap: 257 is out of range (1..256)"},
		"an alias":                            {"data: &x d\nrates: *x", "t.yaml:1:7: data: found an anchor, alias, tag or merge key (not supported: write the value out), want directory\nt.yaml:2:8: rates: found an anchor, alias, tag or merge key (not supported: write the value out), want file"},
		"nothing where a map is wanted":       {"outbound: ", "t.yaml:1:1: outbound: found nothing, want map"},
		"no map":                              {"outbound: [a]", "t.yaml:1:11: outbound: found a list, want a map with ssrf"},
		"no list":                             {"orgs: {id: a}", "t.yaml:1:7: orgs: found a map, want a list of maps"},
		"yes is no boolean":                   {"outbound: {ssrf: {block_private: no}}", `t.yaml:1:34: outbound.ssrf.block_private: found text "no", want true or false`},
		"an address is no network":            {"outbound: {ssrf: {allowlist_cidrs: [127.0.0.1]}}", `t.yaml:1:37: outbound.ssrf.allowlist_cidrs[0]: "127.0.0.1" is not a CIDR; want 127.0.0.1/32`},
		"a network with bits after it":        {"outbound: {ssrf: {allowlist_cidrs: [10.1.2.3/8]}}", `t.yaml:1:37: outbound.ssrf.allowlist_cidrs[0]: "10.1.2.3/8" has address bits after its prefix; want 10.0.0.0/8`},
		"an IPv4 network in IPv6 form":        {"outbound: {ssrf: {extra_blocked_cidrs: ['::ffff:10.0.0.0/104']}}", `t.yaml:1:41: outbound.ssrf.extra_blocked_cidrs[0]: "::ffff:10.0.0.0/104" is an IPv4 network in IPv6 form; write it as IPv4`},
		"no network":                          {"outbound: {ssrf: {extra_blocked_cidrs: [intranet, 7]}}", "t.yaml:1:41: outbound.ssrf.extra_blocked_cidrs[0]: \"intranet\" is not a CIDR such as 10.0.0.0/8\nt.yaml:1:51: outbound.ssrf.extra_blocked_cidrs[1]: found the number 7, want a CIDR such as 10.0.0.0/8"},

		"a model without a window":        {"models: [{model: m}]", "t.yaml:1:10: models[0].context_window: is missing; want context_window, max_input_tokens or images"},
		"a model without a name":          {"models: [{context_window: 4096}]", "t.yaml:1:10: models[0].model: is missing; want model name or glob"},
		"a window that is too small":      {"models: [{model: m, context_window: 511}]", "t.yaml:1:37: models[0].context_window: 511 is out of range (512..1000000000)"},
		"more input than the window has":  {"models: [{model: m, context_window: 4096, max_input_tokens: 8192}]", "t.yaml:1:61: models[0].max_input_tokens: 8192 is above context_window (4096)"},
		"a window of no provider":         {"providers: [{name: openai}]\nmodels: [{model: m, provider: openia, context_window: 4096}]", "t.yaml:2:31: models[0].provider: no provider is called \"openia\"; did you mean openai?"},
		"a window given twice":            {"models: [{model: m, context_window: 4096}, {model: m, max_input_tokens: 4096}]", "t.yaml:1:44: models[1]: is about the same models as models[0], which counts; remove one of them"},
		"a broken glob of a model":        {"models: [{model: 'm[', context_window: 4096}]", `t.yaml:1:18: models[0].model: "m[" is not a valid glob; * stands for any text, ? for one character, [ab] for one of these`},
		"summaries by no model":           {"providers: [{name: a, kind: demo, models: [m]}]\ncompaction: {model: n}\norgs: [{id: a, runtime: {compaction_model: o}}]", "t.yaml:2:21: compaction.model: no provider serves the model \"n\"; name a model that requests can ask for, or add it to models of a provider\nt.yaml:3:44: orgs[0].runtime.compaction_model: no provider serves the model \"o\"; name a model that requests can ask for, or add it to models of a provider"},
		"summaries by several models":     {"providers: [{name: a, kind: demo}]\ncompaction: {model: 'a, b'}", "t.yaml:2:21: compaction.model: must be one name: a list of models writes no summaries; use a route"},
		"summaries by a glob":             {"compaction: {model: 'gpt-*'}", "t.yaml:1:21: compaction.model: must be a name without *, ? and [: one model writes a summary"},
		"a context that is none":          {"orgs: [{id: a, runtime: {context: on}}]", `t.yaml:1:35: orgs[0].runtime.context: "on" is not allowed; want off, prune or auto`},
		"a webhook without a secret":      {"orgs: [{id: a, webhooks: [{name: w, url: 'http://h'}]}]", "t.yaml:1:27: orgs[0].webhooks[0].secret: is missing; want env:NAME, file:PATH or a literal"},
		"a webhook with a password":       {"orgs: [{id: a, webhooks: [{name: w, url: 'http://u:CANARY@h', secret: env:W}]}]", "t.yaml:1:42: orgs[0].webhooks[0].url: the URL contains a user name; the receiver checks the signature of each request instead"},
		"a webhook without events":        {"orgs: [{id: a, webhooks: [{name: w, url: 'http://h', secret: env:W, events: []}]}]", "t.yaml:1:77: orgs[0].webhooks[0].events: is empty, so nothing would be sent; list events, or remove the webhook"},
		"a name of webhooks taken":        {"orgs: [{id: a, webhooks: [{name: w, url: 'http://h', secret: env:W}, {name: w, url: 'http://h', secret: env:W}]}]", `t.yaml:1:77: orgs[0].webhooks[1].name: "w" is already used by orgs[0].webhooks[0].name`},
		"a provider without a name":       {"providers: [{kind: demo}]", "t.yaml:1:13: providers[0].name: is missing; want name"},
		"a name that is none":             {"providers: [{name: a/b}]", `t.yaml:1:20: providers[0].name: "a/b" is not a name; want ^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`},
		"a kind that is none":             {"providers: [{name: a, kind: azure}]", `t.yaml:1:29: providers[0].kind: "azure" is not allowed; want openai, openai-responses, anthropic, gemini, bedrock, sglang, vllm or demo`},
		"a provider name taken":           {"providers: [{name: a}, {name: a}]", `t.yaml:1:31: providers[1].name: "a" is already used by providers[0].name`},
		"a base URL without a scheme":     {"providers: [{name: a, base_url: localhost:8000}]", `t.yaml:1:33: providers[0].base_url: "localhost:8000" is not an http:// or https:// URL`},
		"a base URL with a password":      {"providers: [{name: a, base_url: 'http://u:CANARY@h'}]", "t.yaml:1:33: providers[0].base_url: has a user name or password; a credential belongs in a key or a header"},
		"a broken URL with a password":    {"providers: [{name: a, base_url: 'http://u:CANARY@h:x'}]", "t.yaml:1:33: providers[0].base_url: is not a URL; want http://… or https://…"},
		"a base URL with a fragment":      {"providers: [{name: a, base_url: 'http://h/v1#x'}]", `t.yaml:1:33: providers[0].base_url: "http://h/v1#x" has a fragment`},
		"bedrock without a region":        {"providers: [{name: a, kind: bedrock}]", "t.yaml:1:13: providers[0].region: is missing; kind bedrock needs it"},
		"half of an AWS key":              {"providers: [{name: a, kind: bedrock, region: eu, access_key_id: env:A}]", "t.yaml:1:13: providers[0].secret_access_key: is missing; access_key_id needs it"},
		"the other half of it":            {"providers: [{name: a, kind: bedrock, region: eu, secret_access_key: env:A}]", "t.yaml:1:13: providers[0].access_key_id: is missing; secret_access_key needs it"},
		"a session token alone":           {"providers: [{name: a, kind: bedrock, region: eu, session_token: env:A}]", "t.yaml:1:65: providers[0].session_token: needs access_key_id and secret_access_key"},
		"two kinds of AWS credentials":    {"providers: [{name: a, kind: bedrock, region: eu, access_key_id: env:A, secret_access_key: env:A, api_key: env:B}]", "t.yaml:1:107: providers[0].api_key: cannot be combined with access_key_id; want one of them"},
		"a header of a bedrock key":       {"providers: [{name: a, kind: bedrock, region: eu, api_key_header: x}]", "t.yaml:1:66: providers[0].api_key_header: is not for kind bedrock"},
		"a header that cannot be":         {"providers: [{name: a, api_key_header: \"a b\"}]", "t.yaml:1:39: providers[0].api_key_header: is not a header name"},
		"a relayed credential":            {"providers: [{name: a, relay_headers: [x-title, authorization]}]", "t.yaml:1:48: providers[0].relay_headers[1]: is a credential; the gateway sends its own (api_key), so remove it here"},
		"a relayed Google key":            {"providers: [{name: a, relay_headers: [X-Goog-Api-Key]}]", "t.yaml:1:39: providers[0].relay_headers[0]: is a credential; the gateway sends its own (api_key), so remove it here"},
		"a relayed header of the hop":     {"providers: [{name: a, relay_headers: [keep-alive]}]", "t.yaml:1:39: providers[0].relay_headers[0]: is for the gateway or for one connection, and is never relayed; remove it here"},
		"a relayed header of ours":        {"providers: [{name: a, relay_headers: [turnpike-mcp-disabled]}]", "t.yaml:1:39: providers[0].relay_headers[0]: is for the gateway or for one connection, and is never relayed; remove it here"},
		"a relayed header of the key":     {"providers: [{name: a, api_key_header: x-key, relay_headers: [X-Key]}]", "t.yaml:1:62: providers[0].relay_headers[0]: is the header of the gateway's key (api_key_header); remove it here"},
		"a relayed header that cannot be": {"providers: [{name: a, relay_headers: ['a b']}]", "t.yaml:1:39: providers[0].relay_headers[0]: is not a header name"},
		"relayed headers of another kind": {"providers: [{name: a, kind: anthropic, relay_headers: [x-title]}]", "t.yaml:1:55: providers[0].relay_headers: is only for the kinds openai and openai-responses; requests to other kinds are translated"},
		"a bedrock key elsewhere":         {"providers: [{name: a, region: eu, api_version: v1}]", "t.yaml:1:31: providers[0].region: is only for kind bedrock\nt.yaml:1:48: providers[0].api_version: is only for kind gemini"},
		"a credential that is a number":   {"providers: [{name: a, api_key: 1234567}]", "t.yaml:1:32: providers[0].api_key: found a number, want text (put it in quotes)"},
		"a credential that is a bad name": {"providers: [{name: a, api_key: 'env:sk-CANARY'}]", "t.yaml:1:32: providers[0].api_key: the name after env: must match ^[A-Za-z_][A-Za-z0-9_]{0,127}$ and end the value"},
		"a credential with a scheme":      {"providers: [{name: a, api_key: Bearer env:X}]", "t.yaml:1:32: providers[0].api_key: has text before its reference; want one reference or a literal"},
		"a credential from a vault":       {"providers: [{name: a, api_key: 'secret:x'}]", "t.yaml:1:32: providers[0].api_key: secret:NAME is for headers and variables of an org's servers; want env:NAME or file:PATH"},
		"an empty model name":             {`providers: [{name: a, models: [""]}]`, "t.yaml:1:32: providers[0].models[0]: is empty"},

		"an org without an id":              {"orgs: [{}]", "t.yaml:1:8: orgs[0].id: is missing; want name"},
		"an org that is a word":             {"orgs: [default]", `t.yaml:1:8: orgs[0]: found text "default", want a map with id, features, keys, runtime, mcp_servers, http_tools, webhooks, agents`},
		"an org id taken":                   {"orgs:\n  - id: a\n  - id: a", `t.yaml:3:9: orgs[1].id: "a" is already used by orgs[0].id`},
		"a feature that is none":            {"orgs: [{id: a, features: [mcp]}]", `t.yaml:1:27: orgs[0].features[0]: "mcp" is not allowed; want mcp_outbound or has_mcp_outbound`},
		"a key name taken":                  {"orgs: [{id: a, keys: [{name: k, key: 'env:A'}, {name: k, key: 'env:B'}]}]", `t.yaml:1:55: orgs[0].keys[1].name: "k" is already used by orgs[0].keys[0].name`},
		"a key in two orgs":                 {"orgs: [{id: a, keys: [{name: k, key: 'env:A'}]}, {id: b, keys: [{name: k, key: 'env:A'}]}]", "t.yaml:1:80: orgs[1].keys[0].key: is the same as orgs[0].keys[0].key; a key belongs to one caller"},
		"an empty key":                      {"orgs: [{id: a, keys: [{name: k, key: ''}]}]", "t.yaml:1:38: orgs[0].keys[0].key: is empty; want env:NAME, file:PATH or a literal"},
		"a role that is none":               {"orgs: [{id: a, keys: [{name: k, key: 'env:A', role: root}]}]", `t.yaml:1:53: orgs[0].keys[0].role: "root" is not allowed; want owner, admin, member, approver, reader or tools`},
		"no rounds":                         {"orgs: [{id: a, runtime: {max_rounds: 0}}]", "t.yaml:1:38: orgs[0].runtime.max_rounds: 0 is out of range (1..256)"},                                 // B01
		"too many rounds":                   {"orgs: [{id: a, runtime: {max_rounds: 51}}]", "t.yaml:1:38: orgs[0].runtime.max_rounds: 51 is above max_rounds_cap (50)"},                           // B01
		"more rounds of tools than the cap": {"max_rounds_cap: 5\norgs: [{id: a, runtime: {max_tool_rounds: 6}}]", "t.yaml:2:43: orgs[0].runtime.max_tool_rounds: 6 is above max_rounds_cap (5)"}, // B14
		"more rounds than the cap":          {"max_rounds_cap: 5\norgs: [{id: a, runtime: {max_rounds: 6}}]", "t.yaml:2:38: orgs[0].runtime.max_rounds: 6 is above max_rounds_cap (5)"},           // B02
		"a duration without a unit":         {"orgs: [{id: a, runtime: {deadline: 120}}]", `t.yaml:1:36: orgs[0].runtime.deadline: found the number 120, want a duration such as "30s" or "10m" (1ms..24h)`},
		"a duration that is none":           {"orgs: [{id: a, runtime: {catalog_ttl: soon}}]", `t.yaml:1:39: orgs[0].runtime.catalog_ttl: found text "soon", want a duration such as "30s" or "10m" (0s..24h)`},
		"a duration out of range":           {"orgs: [{id: a, runtime: {deadline: 0s}}]", "t.yaml:1:36: orgs[0].runtime.deadline: 0s is out of range (1ms..24h)"},
		"no concurrency":                    {"orgs: [{id: a, runtime: {concurrency: 0}}]", "t.yaml:1:39: orgs[0].runtime.concurrency: 0 is out of range (1..100000)"},
		"a tiny result":                     {"orgs: [{id: a, runtime: {tool_result_max_bytes: 1023}}]", "t.yaml:1:49: orgs[0].runtime.tool_result_max_bytes: 1023 is out of range (1024..2147483647)"},
		"a number beyond all":               {"orgs: [{id: a, runtime: {concurrency: 99999999999999999999}}]", `t.yaml:1:39: orgs[0].runtime.concurrency: found text "99999999999999999999", want a whole number (1..100000)`},
		"a stream mode that is none":        {"orgs: [{id: a, runtime: {stream_mode: fast}}]", `t.yaml:1:39: orgs[0].runtime.stream_mode: "fast" is not allowed; want live, final_only or disabled`},
		"a burst of no limit":               {"orgs: [{id: a, runtime: {burst: 6}, keys: [{name: k, key: 'env:A', burst: 1}]}]", "t.yaml:1:33: orgs[0].runtime.burst: needs requests_per_minute\nt.yaml:1:75: orgs[0].keys[0].burst: needs requests_per_minute"},
		"a rate below zero":                 {"orgs: [{id: a, runtime: {requests_per_minute: -1}}]", "t.yaml:1:47: orgs[0].runtime.requests_per_minute: -1 is out of range (0..1000000)"},
		"a rate beyond all":                 {"orgs: [{id: a, keys: [{name: k, key: 'env:A', requests_per_minute: 1000001}]}]", "t.yaml:1:68: orgs[0].keys[0].requests_per_minute: 1000001 is out of range (0..1000000)"},
		"no keys for orgs":                  {"org_caps: {keys: 0}", "t.yaml:1:18: org_caps.keys: 0 is out of range (1..1000000)"},
		"no servers for orgs":               {"org_caps: {mcp_servers: 10001}", "t.yaml:1:25: org_caps.mcp_servers: 10001 is out of range (1..10000)"},
		"no secrets for orgs":               {"org_caps: {secrets: many}", `t.yaml:1:21: org_caps.secrets: found text "many", want a whole number (1..1000000)`},
		"no handovers for orgs":             {"org_caps: {handovers: -1}", "t.yaml:1:23: org_caps.handovers: -1 is out of range (1..10000000)"},
		"no space for orgs":                 {"org_caps: {stored_mib: 0.5}", "t.yaml:1:24: org_caps.stored_mib: found the number 0.5, want a whole number (1..2147483647)"},
		"a cap that is a slip":              {"org_caps: {servers: 5}", "t.yaml:1:12: org_caps.servers: unknown key; did you mean secrets?"},
		"no requests":                       {"max_requests: 0", "t.yaml:1:15: max_requests: 0 is out of range (1..1000000)"},
		"a runtime key that is a slip":      {"orgs: [{id: a, runtime: {max_round: 3}}]", "t.yaml:1:26: orgs[0].runtime.max_round: unknown key; did you mean max_rounds?"},

		"a server without an address":              {"orgs: [{id: a, mcp_servers: [{name: s}]}]", "t.yaml:1:30: orgs[0].mcp_servers[0].url: is missing; want an http or https URL"},
		"a server URL of another scheme":           {"orgs: [{id: a, mcp_servers: [{name: s, url: 'file:///etc/passwd'}]}]", `t.yaml:1:45: orgs[0].mcp_servers[0].url: "file:///etc/passwd" is not an http:// or https:// URL`},
		"a server name taken":                      {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a}, {name: s, url: http://b}]}]", `t.yaml:1:63: orgs[0].mcp_servers[1].name: "s" is already used by orgs[0].mcp_servers[0].name`},
		"tools that are one word":                  {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, tools: echo}]}]", `t.yaml:1:62: orgs[0].mcp_servers[0].tools: found text "echo", want "*" or a list of tool names`},
		"a header of our own":                      {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, headers: {host: b}}]}]", "t.yaml:1:65: orgs[0].mcp_servers[0].headers.host: is a header that the gateway sets itself"},
		"a header that is none":                    {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, headers: {'a b': c}}]}]", `t.yaml:1:65: orgs[0].mcp_servers[0].headers."a b": is not a header name`},
		"a header in two spellings":                {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, headers: {X-A: b, x-a: c}}]}]", "t.yaml:1:73: orgs[0].mcp_servers[0].headers.x-a: is given twice, as X-A"},
		"two references in a header":               {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, headers: {X-A: 'env:A env:B'}}]}]", "t.yaml:1:70: orgs[0].mcp_servers[0].headers.X-A: the name after env: must match ^[A-Za-z_][A-Za-z0-9_]{0,127}$ and end the value"},
		"a prefix without its naming":              {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, prefix: p}]}]", "t.yaml:1:63: orgs[0].mcp_servers[0].prefix: is only for naming: prefixed"},
		"an approval that is none":                 {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, require_approval: auto}]}]", `t.yaml:1:73: orgs[0].mcp_servers[0].require_approval: found text "auto", want never, always, writes or map of rules`},
		"an approval rule without a condition":     {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, require_approval: {always: {}}}]}]", "t.yaml:1:82: orgs[0].mcp_servers[0].require_approval.always: selects no tools; want tool_names, read_only or both"},
		"an approval rule of nobody's annotations": {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, require_approval: {never: {read_only: true}}}]}]", "t.yaml:1:93: orgs[0].mcp_servers[0].require_approval.never.read_only: needs trust: true; without it nobody believes what the server says of its tools"},
		"an approval rule that is none":            {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, require_approval: {always: {tools: [a]}}}]}]", "t.yaml:1:82: orgs[0].mcp_servers[0].require_approval.always: selects no tools; want tool_names, read_only or both\nt.yaml:1:83: orgs[0].mcp_servers[0].require_approval.always.tools: unknown key; known here: tool_names, read_only"},
		"a cache that is none":                     {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, cache: some}]}]", `t.yaml:1:62: orgs[0].mcp_servers[0].cache: found text "some", want read_only, all or list of tool names`},
		"a tool that reads and is keyed":           {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, reads: [x, y], keyed: [z, y]}]}]", `t.yaml:1:81: orgs[0].mcp_servers[0].keyed[1]: "y" is also in reads; want it in one of them`},
		"a hosted tool without a tool":             {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, hosted: [web_search]}]}]", `t.yaml:1:64: orgs[0].mcp_servers[0].hosted[0]: "web_search" is not TYPE=TOOL, where TYPE is web_search, file_search, code_interpreter or image_generation`},
		"a hosted tool of another type":            {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, hosted: [computer_use=draw]}]}]", `t.yaml:1:64: orgs[0].mcp_servers[0].hosted[0]: "computer_use=draw" is not TYPE=TOOL, where TYPE is web_search, file_search, code_interpreter or image_generation`},
		"a hosted tool with no name":               {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, hosted: [web_search=]}]}]", `t.yaml:1:64: orgs[0].mcp_servers[0].hosted[0]: the tool of web_search is empty`},
		"a hosted tool twice":                      {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, hosted: [web_search=x, web_search=y]}]}]", `t.yaml:1:78: orgs[0].mcp_servers[0].hosted[1]: web_search is already in hosted[0]; a type has one tool`},
		"a hosted tool of two servers":             {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, hosted: [web_search=x]}, {name: t, url: http://b, hosted: [file_search=z, web_search=y]}]}]", `t.yaml:1:129: orgs[0].mcp_servers[1].hosted[1]: web_search is already in orgs[0].mcp_servers[0].hosted; a type has one tool`},
		"a hosted tool that is not used":           {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, tools: [y], hosted: [web_search=x]}]}]", `t.yaml:1:76: orgs[0].mcp_servers[0].hosted[0]: "x" is not in tools`},
		"no calls at a time":                       {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, max_concurrent_calls: 0}]}]", "t.yaml:1:77: orgs[0].mcp_servers[0].max_concurrent_calls: 0 is out of range (1..10000)"},
		"too many calls at a time":                 {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, max_concurrent_calls: 10001}]}]", "t.yaml:1:77: orgs[0].mcp_servers[0].max_concurrent_calls: 10001 is out of range (1..10000)"},
		"an environment without command":           {"orgs: [{id: a, mcp_servers: [{name: s, url: http://a, env: {A: b}}]}]", "t.yaml:1:60: orgs[0].mcp_servers[0].env: is only for servers with command"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("t.yaml", []byte(c.file), nothing)
			if err == nil {
				t.Fatal("accepted")
			}
			if diff := cmp.Diff(c.want, err.Error()); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(err.Error(), "CANARY") {
				t.Error("the message shows a credential")
			}
		})
	}
}

func TestAllMistakesAreReportedAtOnce(t *testing.T) {
	const file = `max_rounds_cap: 5
listn: x
orgs:
  - id: a
    runtime:
      max_rounds: 9
      stream_mode: fast
    keys: [{name: k}]
  - id: a
`
	_, err := Parse("t.yaml", []byte(file), variablesOf(map[string]string{"TURNPIKE_LISTEN": "here"}))
	var e *Error
	if !errors.As(err, &e) {
		t.Fatal(err)
	}
	const want = `t.yaml:2:1: listn: unknown key; did you mean listen?
t.yaml:6:19: orgs[0].runtime.max_rounds: 9 is above max_rounds_cap (5)
t.yaml:7:20: orgs[0].runtime.stream_mode: "fast" is not allowed; want live, final_only or disabled
t.yaml:8:12: orgs[0].keys[0].key: is missing; want env:NAME, file:PATH or a literal
t.yaml:9:9: orgs[1].id: "a" is already used by orgs[0].id
TURNPIKE_LISTEN: listen: "here" is not host:port, such as 127.0.0.1:8080`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Error(diff)
	}
	if len(e.Mistakes) != 6 {
		t.Errorf("%d mistakes", len(e.Mistakes))
	}
}

func TestWhatIsNotBuiltIsRefusedOnlyWhereItIsAskedFor(t *testing.T) {
	const other = ": a value other than the default is not built yet in this version; leave it out or set it to "
	server := func(s string) string { return "orgs: [{id: a, mcp_servers: [{name: s, " + s + "}]}]" }
	runtime := func(s string) string { return "orgs: [{id: a, runtime: {" + s + "}}]" }
	for name, c := range map[string]struct{ file, want string }{
		"redis":              {"redis: 'redis://h'", "t.yaml:1:8: redis" + other + `""`},
		"clickhouse":         {"clickhouse: 'http://h'", "t.yaml:1:13: clickhouse" + other + `""`},
		"none of them":       {"database: ''\nredis: ''\nclickhouse: ''\nrates: ''", ""},
		"an output limit":    {"providers: [{name: a, kind: openai, default_max_tokens: 5}]", "t.yaml:1:57: providers[0].default_max_tokens: is only for kind anthropic"},
		"no output":          {"providers: [{name: a, kind: anthropic, default_max_tokens: 0}]", "t.yaml:1:60: providers[0].default_max_tokens: 0 is out of range (1..1000000)"},
		"a version":          {"providers: [{name: a, kind: openai, api_version: v1}]", "t.yaml:1:50: providers[0].api_version: is only for kind gemini"},
		"a dialect":          {"providers: [{name: a, kind: sglang, base_url: 'http://h'}]", "t.yaml:1:29: providers[0].kind: sglang is not built yet in this version; set it to openai, openai-responses, anthropic, gemini, bedrock or demo"},
		"extensions":         {runtime("extensions: [files]"), ""},
		"lenient arguments":  {runtime("tool_arg_validation: lenient"), ""},
		"a command":          {server("command: [npx, x], env: {A: b}"), ""},
		"approval always":    {server("url: http://a, require_approval: always"), ""},
		"approval by rules":  {server("url: http://a, trust: true, require_approval: {always: {tool_names: [x], read_only: false}}"), ""},
		"approval never":     {server("url: http://a, require_approval: never"), ""},
		"a mistake, only it": {server("url: http://a, cache: [7]"), `t.yaml:1:63: orgs[0].mcp_servers[0].cache[0]: found the number 7, want tool name (put it in quotes)`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if _, err := Parse("t.yaml", []byte(c.file), nothing); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
