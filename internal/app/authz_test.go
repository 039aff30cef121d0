package app_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/id"
)

// may says who may use a route.
type may int

const (
	open           may = iota // everybody, without a key
	known                     // every key of an org
	starts                    // owner, admin and member
	calls                     // owner, admin, member and tools
	reads                     // owner, admin and reader
	readsRuns                 // owner, admin, member and reader
	readsApprovals            // owner, admin, approver and reader
	manages                   // owner and admin
	decides                   // owner, admin and approver
	decidesOwn                // owner, admin, approver and member
	operate                   // the operator
)

// visit is one way of asking a route: for a thing of one's own, of another org,
// or one that is not there.
type visit struct {
	whose  string
	status int // for those who may
	path   func(*twoOrgs) string
	body   func(*twoOrgs) string // nil = {}
	member int                   // status for a member; 0 = as for the others
}

// access is the whole API: for each route who may use it, and what it answers to
// them. A route that is not here fails the test.
func access() map[string]struct {
	who    may
	visits []visit
} {
	type routes = map[string]struct {
		who    may
		visits []visit
	}
	at := func(path string) func(*twoOrgs) string { return func(*twoOrgs) string { return path } }
	says := func(body string) func(*twoOrgs) string { return func(*twoOrgs) string { return body } }
	const rewindNone = `{"before_run":"run_none"}`
	one := func(status int, path string) []visit { return []visit{{"own", status, at(path), nil, 0}} }
	with := func(status int, path string, body func(*twoOrgs) string) []visit {
		return []visit{{"own", status, at(path), body, 0}}
	}
	// things are asked for by a name, which of gives one of an org.
	things := func(status int, path string, of func(w *twoOrgs, key string) string) []visit {
		return []visit{
			{"own", status, func(w *twoOrgs) string { return fmt.Sprintf(path, of(w, "owner-key")) }, nil, 0},
			{"other", 404, func(w *twoOrgs) string { return fmt.Sprintf(path, of(w, w.stranger)) }, nil, 0},
			{"missing", 404, func(w *twoOrgs) string { return fmt.Sprintf(path, w.name()) }, nil, 0},
		}
	}
	// parts are things inside an agent, whose path after /api/agents/ of returns.
	parts := func(status int, list string, of func(w *twoOrgs, key string) string) []visit {
		return []visit{
			{"own", status, func(w *twoOrgs) string { return "/api/agents/" + of(w, "owner-key") }, nil, 0},
			{"other", 404, func(w *twoOrgs) string { return "/api/agents/" + of(w, w.stranger) }, nil, 0},
			{"missing", 404, func(w *twoOrgs) string { return "/api/agents/" + w.name() + "/" + list + "/" + w.name() }, nil, 0},
		}
	}
	// ofRuns are runs of three keys, by id and UUID, and ids that are none of a run.
	ofRuns := func(status int, path string) []visit {
		run := func(key string) func(*twoOrgs) string {
			return func(w *twoOrgs) string { return fmt.Sprintf(path, w.run(key)) }
		}
		none := func(name string) func(*twoOrgs) string {
			return func(*twoOrgs) string { return fmt.Sprintf(path, name) }
		}
		return []visit{
			{"own", status, run("owner-key"), nil, 404},
			{"own, by UUID", status, func(w *twoOrgs) string { return fmt.Sprintf(path, id.UUID(w.run("owner-key"))) }, nil, 404},
			{"a member's", status, run("member-key"), nil, 0},
			{"other", 404, func(w *twoOrgs) string { return fmt.Sprintf(path, w.run(w.stranger)) }, nil, 0},
			{"missing", 404, func(w *twoOrgs) string { return fmt.Sprintf(path, w.name()) }, nil, 0},
			{"a relay's", 404, func(w *twoOrgs) string { return fmt.Sprintf(path, w.relay()) }, nil, 0},
			{"no UUID of a run", 404, none("01890000-0000-7000-8000-000000000000"), nil, 0},
			{"no id", 404, none("%00%2F..%20%F0%9F%A6%8A"), nil, 0},
			{"a long id", 404, none(strings.Repeat("x", 4000)), nil, 0},
		}
	}
	ofOrgs := func(path string, body func(*twoOrgs) string, status int) []visit {
		return []visit{
			{"own", status, func(w *twoOrgs) string { return fmt.Sprintf(path, w.org()) }, body, 0},
			{"missing", 404, func(w *twoOrgs) string { return fmt.Sprintf(path, w.name()) }, body, 0},
		}
	}
	withBody := func(visits []visit, body string) []visit {
		for i := range visits {
			visits[i].body = says(body)
		}
		return visits
	}
	// forMembers sets what a member gets for a thing of another key.
	forMembers := func(status int, visits []visit) []visit {
		for i := range visits {
			visits[i].member = status
		}
		return visits
	}
	const agentMessage = `{"message":"What is Go?"}`
	const relayed = `{"model":"m","input":"x"}`
	newKey := func(w *twoOrgs) string { return fmt.Sprintf(`{"name":%q,"role":"reader"}`, w.name()) }
	return routes{
		"GET /healthz":      {open, one(200, "/healthz")},
		"GET /readyz":       {open, one(200, "/readyz")},
		"GET /openapi.json": {open, one(200, "/openapi.json")},
		"/":                 {open, one(404, "/elsewhere")},
		"/api/":             {open, one(404, "/api/elsewhere")},

		"GET /v1/containers/{container}/files":              {starts, one(200, "/v1/containers/cntr_1/files")},
		"GET /v1/containers/{container}/files/{id}":         {starts, one(404, "/v1/containers/cntr_1/files/file-1")},
		"GET /v1/containers/{container}/files/{id}/content": {starts, one(404, "/v1/containers/cntr_1/files/file-1/content")},
		"POST /v1/files":             {starts, with(400, "/v1/files", says(`{}`))},
		"GET /v1/files":              {starts, one(200, "/v1/files")},
		"GET /v1/files/{id}":         {starts, forMembers(404, things(200, "/v1/files/%s", (*twoOrgs).upload))},
		"GET /v1/files/{id}/content": {starts, forMembers(404, things(200, "/v1/files/%s/content", (*twoOrgs).upload))},
		"DELETE /v1/files/{id}":      {starts, forMembers(404, things(200, "/v1/files/%s", (*twoOrgs).upload))},

		"/v1/batches":  {starts, one(404, "/v1/batches")},
		"/v1/batches/": {starts, one(404, "/v1/batches/b1")},

		"POST /v1/completions":          {starts, with(200, "/v1/completions", says(relayed))},
		"POST /v1/embeddings":           {starts, with(200, "/v1/embeddings", says(relayed))},
		"POST /v1/moderations":          {starts, with(200, "/v1/moderations", says(relayed))},
		"POST /v1/images/generations":   {starts, with(200, "/v1/images/generations", says(relayed))},
		"POST /v1/images/edits":         {starts, with(200, "/v1/images/edits", says(relayed))},
		"POST /v1/audio/speech":         {starts, with(200, "/v1/audio/speech", says(relayed))},
		"POST /v1/audio/transcriptions": {starts, with(200, "/v1/audio/transcriptions", says(relayed))},
		"POST /v1/audio/translations":   {starts, with(200, "/v1/audio/translations", says(relayed))},

		"GET /v1/sessions/{id}":         {starts, one(404, "/v1/sessions/none")},
		"PUT /v1/sessions/{id}":         {starts, with(200, "/v1/sessions/put", says(`{"messages":[{"role":"user","content":"x"}]}`))},
		"DELETE /v1/sessions/{id}":      {starts, with(200, "/v1/sessions/gone", says(``))},
		"POST /v1/sessions/{id}/fork":   {starts, with(404, "/v1/sessions/none/fork", says(`{"session_id":"fork"}`))},
		"POST /v1/sessions/{id}/rewind": {starts, with(404, "/v1/sessions/none/rewind", says(rewindNone))},

		"POST /v1/chat/completions":                  {starts, with(200, "/v1/chat/completions", says(Question))},
		"POST /v1/responses":                         {starts, with(200, "/v1/responses", says(askedResponses))},
		"POST /v1/responses/input_tokens":            {starts, with(200, "/v1/responses/input_tokens", says(askedResponses))},
		"POST /v1/responses/compact":                 {starts, with(200, "/v1/responses/compact", says(askedResponses))},
		"GET /v1/responses/{id}":                     {starts, things(200, "/v1/responses/%s", (*twoOrgs).response)},
		"POST /v1/responses/{id}/cancel":             {starts, things(400, "/v1/responses/%s/cancel", (*twoOrgs).response)}, // it is not in the background
		"DELETE /v1/responses/{id}":                  {starts, things(200, "/v1/responses/%s", (*twoOrgs).response)},
		"GET /v1/responses/{id}/input_items":         {starts, things(200, "/v1/responses/%s/input_items", (*twoOrgs).response)},
		"POST /v1/conversations":                     {starts, with(200, "/v1/conversations", says(`{}`))},
		"GET /v1/conversations/{id}":                 {starts, things(200, "/v1/conversations/%s", (*twoOrgs).conversation)},
		"POST /v1/conversations/{id}":                {starts, withBody(things(200, "/v1/conversations/%s", (*twoOrgs).conversation), `{"metadata":{}}`)},
		"DELETE /v1/conversations/{id}":              {starts, things(200, "/v1/conversations/%s", (*twoOrgs).conversation)},
		"POST /v1/conversations/{id}/fork":           {starts, things(200, "/v1/conversations/%s/fork", (*twoOrgs).conversation)},
		"POST /v1/conversations/{id}/rewind":         {starts, with(404, "/v1/conversations/none/rewind", says(rewindNone))},
		"GET /v1/conversations/{id}/items":           {starts, things(200, "/v1/conversations/%s/items", (*twoOrgs).conversation)},
		"POST /v1/conversations/{id}/items":          {starts, withBody(things(200, "/v1/conversations/%s/items", (*twoOrgs).conversation), `{"items":[{"role":"user","content":"x"}]}`)},
		"GET /v1/conversations/{id}/items/{item}":    {starts, things(200, "/v1/conversations/%s", (*twoOrgs).conversationItem)},
		"DELETE /v1/conversations/{id}/items/{item}": {starts, things(200, "/v1/conversations/%s", (*twoOrgs).conversationItem)},
		"GET /v1/models":                             {known, one(200, "/v1/models")},
		"GET /v1/models/{model...}":                  {known, []visit{{"own", 200, at("/v1/models/m"), nil, 0}, {"missing", 404, at("/v1/models/zzz"), nil, 0}}},
		"POST /mcp":                                  {calls, with(400, "/mcp", says(`{}`))},
		"GET /mcp":                                   {calls, one(404, "/mcp")},
		"DELETE /mcp":                                {calls, one(404, "/mcp")},
		"GET /api/org":                               {reads, one(200, "/api/org")},
		"PATCH /api/org/runtime":                     {manages, one(200, "/api/org/runtime")},
		"GET /api/routes":                            {reads, one(200, "/api/routes")},
		"GET /api/budgets":                           {reads, one(200, "/api/budgets")},
		"GET /api/usage":                             {reads, one(200, "/api/usage")},
		"GET /api/audit":                             {reads, one(200, "/api/audit")},
		"GET /api/audit/export":                      {reads, one(200, "/api/audit/export")},
		"GET /api/keys":                              {reads, one(200, "/api/keys")},
		"POST /api/keys":                             {manages, with(201, "/api/keys", newKey)},
		"PATCH /api/keys/{id}":                       {manages, things(200, "/api/keys/%s", (*twoOrgs).key)},
		"POST /api/keys/{id}/rotate":                 {manages, things(400, "/api/keys/%s/rotate", (*twoOrgs).key)},
		"DELETE /api/keys/{id}":                      {manages, things(200, "/api/keys/%s", (*twoOrgs).key)},
		"GET /api/mcp-servers":                       {reads, one(200, "/api/mcp-servers")},
		"POST /api/mcp-servers":                      {manages, with(201, "/api/mcp-servers", func(w *twoOrgs) string { return w.serverBody(w.name()) })},
		"GET /api/mcp-servers/{name}":                {reads, things(200, "/api/mcp-servers/%s", (*twoOrgs).server)},
		"PATCH /api/mcp-servers/{name}":              {manages, things(200, "/api/mcp-servers/%s", (*twoOrgs).server)},
		"DELETE /api/mcp-servers/{name}":             {manages, things(200, "/api/mcp-servers/%s", (*twoOrgs).server)},
		"GET /api/secrets":                           {manages, one(200, "/api/secrets")},
		"PUT /api/secrets/{name}":                    {manages, with(200, "/api/secrets/own", says(`{"value":"a value"}`))},
		"DELETE /api/secrets/{name}":                 {manages, things(200, "/api/secrets/%s", (*twoOrgs).secret)},
		"GET /api/buckets":                           {readsRuns, one(200, "/api/buckets")},
		"GET /api/buckets/{name}/files":              {readsRuns, things(200, "/api/buckets/%s/files", (*twoOrgs).bucket)},
		"GET /api/buckets/{name}/files/{path...}":    {readsRuns, things(200, "/api/buckets/docs/files/%s", (*twoOrgs).file)},
		"PUT /api/buckets/{name}/files/{path...}":    {starts, things(200, "/api/buckets/%s/files/a/b.txt", (*twoOrgs).bucket)},
		"DELETE /api/buckets/{name}/files/{path...}": {starts, things(200, "/api/buckets/docs/files/%s", (*twoOrgs).file)},
		"POST /api/buckets/{name}/signed-urls":       {readsRuns, withBody(things(400, "/api/buckets/%s/signed-urls", (*twoOrgs).bucket)[:1], `{"path":""}`)},
		"GET /v1/blobs/{id}": {open, []visit{
			{"own", 200, func(w *twoOrgs) string { return w.signed("owner-key") }, nil, 0},
			{"unsigned", 403, at("/v1/blobs/x?exp=1&sig=x"), nil, 0},
		}},
		"GET /api/webhooks":                   {manages, one(200, "/api/webhooks")},
		"POST /api/webhooks":                  {manages, with(201, "/api/webhooks", func(w *twoOrgs) string { return w.webhookBody(w.name()) })},
		"PATCH /api/webhooks/{name}":          {manages, things(200, "/api/webhooks/%s", (*twoOrgs).webhook)},
		"DELETE /api/webhooks/{name}":         {manages, things(200, "/api/webhooks/%s", (*twoOrgs).webhook)},
		"POST /api/webhooks/{name}/rotate":    {manages, withBody(things(200, "/api/webhooks/%s/rotate", (*twoOrgs).webhook), `{"overlap":"1h"}`)},
		"POST /api/webhooks/{name}/test":      {manages, things(200, "/api/webhooks/%s/test", (*twoOrgs).webhook)},
		"GET /api/webhooks/{name}/deliveries": {manages, things(200, "/api/webhooks/%s/deliveries", (*twoOrgs).webhook)},
		"POST /api/webhooks/{name}/deliveries/{id}/redeliver": {manages, []visit{
			{"own", 200, func(w *twoOrgs) string { return w.delivery("owner-key") }, nil, 0},
			{"other", 404, func(w *twoOrgs) string { return w.delivery(w.stranger) }, nil, 0},
			{"missing", 404, func(w *twoOrgs) string {
				return "/api/webhooks/" + w.webhook("owner-key") + "/deliveries/evt_x/redeliver"
			}, nil, 0},
		}},
		"GET /api/agents":                              {readsRuns, one(200, "/api/agents")},
		"POST /api/agents":                             {manages, with(201, "/api/agents", func(w *twoOrgs) string { return fmt.Sprintf(`{"name":%q}`, w.name()) })},
		"GET /api/agents/{id}":                         {readsRuns, things(200, "/api/agents/%s", (*twoOrgs).agent)},
		"PATCH /api/agents/{id}":                       {manages, things(200, "/api/agents/%s", (*twoOrgs).agent)},
		"DELETE /api/agents/{id}":                      {manages, things(200, "/api/agents/%s", (*twoOrgs).agent)},
		"POST /api/agents/{id}/archive":                {manages, things(200, "/api/agents/%s/archive", (*twoOrgs).agent)},
		"POST /api/agents/{id}/restore":                {manages, things(200, "/api/agents/%s/restore", (*twoOrgs).agent)},
		"GET /api/agents/{id}/versions":                {reads, things(200, "/api/agents/%s/versions", (*twoOrgs).agent)},
		"GET /api/agents/{id}/versions/{version}":      {reads, things(200, "/api/agents/%s/versions/1", (*twoOrgs).agent)},
		"GET /api/agents/{id}/mcp-servers":             {reads, things(200, "/api/agents/%s/mcp-servers", (*twoOrgs).agent)},
		"POST /api/agents/{id}/mcp-servers":            {manages, withBody(things(201, "/api/agents/%s/mcp-servers", (*twoOrgs).agent), agentServer)},
		"GET /api/agents/{id}/mcp-servers/{sid}":       {reads, parts(200, "mcp-servers", (*twoOrgs).agentServer)},
		"GET /api/agents/{id}/mcp-servers/{sid}/tools": {manages, parts(502, "mcp-servers", (*twoOrgs).agentServerTools)[:2]},
		"PUT /api/agents/{id}/mcp-servers/{sid}":       {manages, parts(200, "mcp-servers", (*twoOrgs).agentServer)},
		"DELETE /api/agents/{id}/mcp-servers/{sid}":    {manages, parts(200, "mcp-servers", (*twoOrgs).agentServer)},
		"GET /api/agents/{id}/hooks":                   {reads, things(200, "/api/agents/%s/hooks", (*twoOrgs).agent)},
		"POST /api/agents/{id}/hooks":                  {manages, withBody(things(201, "/api/agents/%s/hooks", (*twoOrgs).agent), AgentHook)},
		"GET /api/agents/{id}/hooks/{hid}":             {reads, parts(200, "hooks", (*twoOrgs).agentHook)},
		"DELETE /api/agents/{id}/hooks/{hid}":          {manages, parts(200, "hooks", (*twoOrgs).agentHook)},
		"GET /api/agents/{id}/tools":                   {reads, things(200, "/api/agents/%s/tools", (*twoOrgs).agent)},
		"PATCH /api/agents/{id}/tools/{aid}":           {manages, parts(200, "tools", (*twoOrgs).agentTool)},
		"DELETE /api/agents/{id}/tools/{aid}":          {manages, parts(200, "tools", (*twoOrgs).agentTool)},
		"POST /api/agents/{id}/tools":                  {manages, withBody(things(201, "/api/agents/%s/tools", (*twoOrgs).agent), `{"tool_type":"builtin","tool_name":"web_search"}`)},
		"/api/agents/":                                 {open, one(404, "/api/agents/a/elsewhere")},
		"POST /api/agents/{id}/run":                    {starts, withBody(things(200, "/api/agents/%s/run", (*twoOrgs).agentWithModel), agentMessage)},
		"POST /api/agents/{id}/run/stream":             {starts, withBody(things(200, "/api/agents/%s/run/stream", (*twoOrgs).agentWithModel), agentMessage)},
		"GET /api/agents/{id}/sessions":                {readsRuns, things(200, "/api/agents/%s/sessions", (*twoOrgs).agent)},
		"POST /api/agents/{id}/sessions":               {starts, things(201, "/api/agents/%s/sessions", (*twoOrgs).agent)},
		"DELETE /api/agents/{id}/sessions/{sid}":       {starts, forMembers(404, parts(200, "sessions", (*twoOrgs).sessionOfAgent))},
		"GET /api/agents/runs/{id}":                    {readsRuns, forMembers(404, things(200, "/api/agents/runs/%s", (*twoOrgs).agentRun))},
		"GET /api/agents/runs/{id}/events":             {readsRuns, forMembers(404, things(200, "/api/agents/runs/%s/events", (*twoOrgs).agentRun))},
		"POST /api/agents/runs/{id}/cancel":            {starts, forMembers(404, things(409, "/api/agents/runs/%s/cancel", (*twoOrgs).agentRun))},                        // it is over
		"POST /api/agents/runs/{id}/approve":           {decidesOwn, withBody(things(404, "/api/agents/runs/%s/approve", (*twoOrgs).agentRun)[1:], `{"approved":true}`)}, // which of them depends on the run: TestARunOfAnAgentWaitsIsDeniedAndCancelled
		"/api/agents/runs/":                            {open, one(404, "/api/agents/runs/a/elsewhere")},
		"GET /api/sessions/{id}":                       {readsRuns, forMembers(404, things(200, "/api/sessions/%s", (*twoOrgs).session))},
		"GET /api/sessions/{id}/inputs":                {readsRuns, forMembers(404, things(200, "/api/sessions/%s/inputs", (*twoOrgs).session))},
		"GET /api/sessions/{id}/messages":              {readsRuns, forMembers(404, things(200, "/api/sessions/%s/messages", (*twoOrgs).session))},
		"GET /api/sessions/{id}/runs":                  {readsRuns, forMembers(404, things(200, "/api/sessions/%s/runs", (*twoOrgs).session))},
		"POST /api/sessions/{id}/fork":                 {starts, forMembers(404, things(201, "/api/sessions/%s/fork", (*twoOrgs).session))},
		"POST /api/sessions/{id}/rewind":               {starts, with(404, "/api/sessions/none/rewind", says(rewindNone))},
		"DELETE /api/sessions/{id}":                    {starts, forMembers(404, things(200, "/api/sessions/%s", (*twoOrgs).session))},
		"/api/sessions/":                               {open, one(404, "/api/sessions/a/elsewhere")},
		"GET /api/tools":                               {readsRuns, one(200, "/api/tools")},
		"POST /api/tools":                              {manages, with(201, "/api/tools", func(w *twoOrgs) string { return customTool(w.name()) })},
		"GET /api/tools/{id}":                          {readsRuns, things(200, "/api/tools/%s", (*twoOrgs).customTool)},
		"PUT /api/tools/{id}":                          {manages, withBody(things(200, "/api/tools/%s", (*twoOrgs).customTool), `{"description":"other"}`)},
		"DELETE /api/tools/{id}":                       {manages, things(200, "/api/tools/%s", (*twoOrgs).customTool)},
		"/api/tools/":                                  {open, one(404, "/api/tools/elsewhere/x")},
		"GET /api/settings":                            {reads, one(200, "/api/settings")},
		"PUT /api/settings":                            {manages, with(200, "/api/settings", says(`{"settings":{"EXA_API_KEY":"a key","AGENT_MAX_STEPS":9}}`))},
		"PUT /api/settings/{key}":                      {manages, with(200, "/api/settings/VISION_MODEL", says(`{"value":"m"}`))},
		"DELETE /api/settings/{key}":                   {manages, one(200, "/api/settings/VISION_MODEL")},
		"POST /api/settings/reset-category":            {manages, with(200, "/api/settings/reset-category", says(`{"category":"tools"}`))},
		"/api/settings/":                               {open, one(404, "/api/settings/a/b")},
		"GET /api/observability/agent-runs":            {readsRuns, one(200, "/api/observability/agent-runs")},
		"GET /api/observability/tool-calls":            {readsRuns, one(200, "/api/observability/tool-calls")},
		"GET /api/observability/orchestration-runs":    {readsRuns, one(200, "/api/observability/orchestration-runs")},
		"GET /api/observability/filter-options":        {readsRuns, one(200, "/api/observability/filter-options")},
		"GET /api/observability/health":                {readsRuns, one(200, "/api/observability/health")},
		"/api/observability/":                          {open, one(404, "/api/observability/elsewhere")},

		"GET /v1/runs":                  {readsRuns, one(200, "/v1/runs?limit=1")},
		"GET /v1/runs/{id}":             {readsRuns, ofRuns(200, "/v1/runs/%s")},
		"GET /v1/runs/{id}/events":      {readsRuns, ofRuns(200, "/v1/runs/%s/events")},
		"POST /v1/runs/{id}/cancel":     {starts, ofRuns(409, "/v1/runs/%s/cancel")}, // it is over
		"POST /v1/runs/{id}/limits":     {starts, withBody(ofRuns(409, "/v1/runs/%s/limits"), `{"rounds":3}`)},
		"GET /v1/approvals":             {readsApprovals, one(200, "/v1/approvals?limit=1")},
		"GET /v1/approvals/{id}":        {readsApprovals, things(200, "/v1/approvals/%s", (*twoOrgs).approval)},
		"POST /v1/approvals/{id}":       {decides, withBody(things(200, "/v1/approvals/%s", (*twoOrgs).approval), `{"decision":"deny"}`)},
		"POST /v1/agent/approvals/{id}": {decidesOwn, forMembers(404, withBody(things(200, "/v1/agent/approvals/%s", (*twoOrgs).approval), `{"decision":"deny"}`))},
		"POST /api/runs/{id}/cancel":    {starts, ofRuns(409, "/api/runs/%s/cancel")},

		"GET /api/orgs":             {operate, one(200, "/api/orgs")},
		"POST /api/orgs":            {operate, with(201, "/api/orgs", func(w *twoOrgs) string { return `{"id":"` + w.name() + `"}` })},
		"PATCH /api/orgs/{org}":     {operate, ofOrgs("/api/orgs/%s", nil, 200)},
		"DELETE /api/orgs/{org}":    {operate, ofOrgs("/api/orgs/%s", nil, 200)},
		"POST /api/orgs/{org}/keys": {operate, ofOrgs("/api/orgs/%s/keys", newKey, 201)},
	}
}

// principals are all kinds of callers, by what they send.
func (w *twoOrgs) principals() map[string]string {
	out := map[string]string{
		"nobody": "", "malformed": "Basic b3duZXIta2V5", "two words": "Bearer owner-key x", "unknown": "Bearer nobody",
		"revoked": "Bearer " + w.revoked, "hash of a key": fmt.Sprintf("Bearer %x", sha256.Sum256([]byte("owner-key"))), "operator": "Bearer operator-key",
	}
	out["expired"], out["rotated"], out["tools"] = "Bearer expired-key", "Bearer "+w.rotated, "Bearer "+w.tools
	for _, role := range []string{"owner", "admin", "member", "approver", "reader"} {
		out[role] = "Bearer " + role + "-key"
	}
	return out
}

// refusal returns the status that keeps the principal out; 0 = it may.
func (m may) refusal(principal string) int {
	allowed := map[may][]string{
		known: {"owner", "admin", "member", "approver", "reader", "tools"}, calls: {"owner", "admin", "member", "tools"}, starts: {"owner", "admin", "member"},
		reads: {"owner", "admin", "reader"}, readsRuns: {"owner", "admin", "member", "reader"}, readsApprovals: {"owner", "admin", "approver", "reader"},
		manages: {"owner", "admin"}, decides: {"owner", "admin", "approver"}, decidesOwn: {"owner", "admin", "approver", "member"}, operate: {"operator"},
	}
	isOfOrg := slices.Contains(allowed[known], principal) || m == operate && principal == "expired" // which is known, and told that it is the wrong one
	switch {
	case m == open || slices.Contains(allowed[m], principal):
		return 0
	case isOfOrg:
		return 403
	}
	return 401 // the operator, too: it is no principal of an org
}

// twoOrgs is a gateway with two orgs that know nothing of each other.
type twoOrgs struct {
	Documented
	stranger string // key of the owner of the other org
	receiver string // URL of webhooks
	revoked  string
	rotated  string // the secret that an owner's key had before its rotation
	tools    string // with the role tools
	made     int
}

func newTwoOrgs(t *testing.T) *twoOrgs {
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if bytes.Contains(got.Body, []byte("delete it")) && !bytes.Contains(got.Body, []byte(`"role":"tool"`)) {
			Asks(Use("delete", `{}`)).Write(w)
			return
		}
		Says("hi").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	gate := NewMCP(t, map[string]Handler{"delete": Echo})
	yaml := strings.Replace(Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL), Server("gate", gate.URL, "require_approval: always")}}.WithVault(), "    runtime: {}\n", "", 1)
	yaml = strings.Replace(yaml, "    keys:\n", "    keys:\n      - {name: late, key: expired-key, role: owner, expires_at: 2001-01-31T18:00:00Z}\n", 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	w := &twoOrgs{Documented: Manage(MustRun(t, yaml)), receiver: receiver.URL}
	w.Do("POST", "/api/orgs", "operator-key", `{"id":"other","features":["mcp_outbound"]}`, 201)
	w.stranger = w.Do("POST", "/api/orgs/other/keys", "operator-key", `{"name":"first","role":"owner"}`, 201)["key"].(string)
	w.Do("POST", "/api/mcp-servers", w.stranger, fmt.Sprintf(`{"name":"tools","url":%q}`, tools.URL), 201)
	w.Do("POST", "/api/mcp-servers", w.stranger, fmt.Sprintf(`{"name":"gate","url":%q,"require_approval":"always"}`, gate.URL), 201)
	gone := w.Do("POST", "/api/keys", "owner-key", `{"name":"gone","role":"owner"}`, 201)
	w.revoked = gone["key"].(string)
	rotated := w.Do("POST", "/api/keys", "owner-key", `{"name":"rotated","role":"owner"}`, 201)
	w.rotated = rotated["key"].(string)
	w.Do("POST", "/api/keys/"+rotated["id"].(string)+"/rotate", "owner-key", `{"overlap":"0s"}`, 200)
	w.tools = w.Do("POST", "/api/keys", "owner-key", `{"name":"inference","role":"tools"}`, 201)["key"].(string)
	w.Do("DELETE", "/api/keys/"+gone["id"].(string), "owner-key", "", 200)
	return w
}

// name returns one that nobody has.
func (w *twoOrgs) name() string { w.made++; return fmt.Sprintf("n%05d", w.made) }

func (w *twoOrgs) serverBody(name string) string {
	return fmt.Sprintf(`{"name":%q,"url":"https://example.com/mcp","enabled":false}`, name)
}

func (w *twoOrgs) server(key string) string {
	name := w.name()
	w.Do("POST", "/api/mcp-servers", key, w.serverBody(name), 201)
	return name
}

func (w *twoOrgs) secret(key string) string {
	name := w.name()
	w.Do("PUT", "/api/secrets/"+name, key, `{"value":"a value"}`, 200)
	return name
}

// bucket returns the name of a bucket, the only one of the org.
func (w *twoOrgs) bucket(key string) string { return w.bucketCalled(key, w.name()) }

func (w *twoOrgs) bucketCalled(key, name string) string {
	w.Do("PATCH", "/api/org/runtime", key, fmt.Sprintf(`{"buckets":[{"name":%q}]}`, name), 200)
	return name
}

// file returns the path of a file in the bucket docs.
func (w *twoOrgs) file(key string) string {
	name := w.name()
	w.bucketCalled(key, "docs")
	w.Do("PUT", "/api/buckets/docs/files/"+name, key, "{}", 200)
	return name
}

// upload returns the id of a file of the key.
func (w *twoOrgs) upload(key string) string {
	return w.Uploaded(key, Upload{Name: "a.txt", Text: "text"}, 200)["id"].(string)
}

// signed returns the path of a signed URL of a file.
func (w *twoOrgs) signed(key string) string {
	signed := w.Do("POST", "/api/buckets/docs/signed-urls", key, fmt.Sprintf(`{"path":%q}`, w.file(key)), 200)["signed_url"].(string)
	_, path, _ := strings.Cut(signed, "/v1/")
	return "/v1/" + path
}

func (w *twoOrgs) webhookBody(name string) string {
	return fmt.Sprintf(`{"name":%q,"url":%q,"events":["run.waiting"]}`, name, w.receiver)
}

// webhook returns the name of a webhook. The other ones of the org are removed.
func (w *twoOrgs) webhook(key string) string {
	for _, one := range Objects(w.Do("GET", "/api/webhooks", key, "", 200)) {
		w.Do("DELETE", "/api/webhooks/"+one["name"].(string), key, "", 200)
	}
	name := w.name()
	w.Do("POST", "/api/webhooks", key, w.webhookBody(name), 201)
	return name
}

// agent returns the id of an agent. The other ones of the org are deleted, because their number is limited.
func (w *twoOrgs) agent(key string) string {
	for _, one := range w.Do("GET", "/api/agents", key, "", 200)["agents"].([]any) {
		w.Do("DELETE", "/api/agents/"+one.(map[string]any)["id"].(string), key, "", 200)
	}
	return w.Do("POST", "/api/agents", key, fmt.Sprintf(`{"name":%q}`, w.name()), 201)["id"].(string)
}

// agentWithModel returns the id of an agent that can run.
func (w *twoOrgs) agentWithModel(key string) string {
	id := w.agent(key)
	w.Do("PATCH", "/api/agents/"+id, key, `{"model":"m"}`, 200)
	return id
}

// sessionOfAgent returns the path of a session of an agent, after that of agents.
func (w *twoOrgs) sessionOfAgent(key string) string {
	list := w.agent(key) + "/sessions"
	return list + "/" + w.Do("POST", "/api/agents/"+list, key, `{}`, 201)["id"].(string)
}

// session returns the id of a session of an agent.
func (w *twoOrgs) session(key string) string {
	_, id, _ := strings.Cut(w.sessionOfAgent(key), "/sessions/")
	return id
}

// agentRun returns the id of a run of an agent, which is over.
func (w *twoOrgs) agentRun(key string) string {
	return w.Do("POST", "/api/agents/"+w.agentWithModel(key)+"/run", key, `{"message":"What is Go?"}`, 200)["run_id"].(string)
}

// agentServer returns the path of an MCP server of an agent, after that of agents.
func (w *twoOrgs) agentServer(key string) string {
	list := w.agent(key) + "/mcp-servers"
	return list + "/" + w.Do("POST", "/api/agents/"+list, key, agentServer, 201)["id"].(string)
}

// customTool returns the body that creates a custom tool.
func customTool(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"d","config":{"endpoint":"https://example.com/tool"}}`, "t"+strings.ReplaceAll(name, ".", "_"))
}

// customTool returns the id of a custom tool. The other ones of the org are deleted, because their number is limited.
func (w *twoOrgs) customTool(key string) string {
	w.agent(key) // which has no tool
	for _, one := range w.Do("GET", fmt.Sprintf("/api/tools?offset=%d", len(builtin.OfAgents())), key, "", 200)["tools"].([]any) {
		w.Do("DELETE", "/api/tools/"+one.(map[string]any)["id"].(string), key, "", 200)
	}
	return w.Do("POST", "/api/tools", key, customTool(w.name()), 201)["id"].(string)
}

// agentServerTools is agentServer for the tools of a server, which does not answer.
func (w *twoOrgs) agentServerTools(key string) string { return w.agentServer(key) + "/tools" }

// agentTool is agentServer for a custom tool.
func (w *twoOrgs) agentTool(key string) string {
	id := w.customTool(key)
	name := w.Do("GET", "/api/tools/"+id, key, "", 200)["name"]
	list := w.agent(key) + "/tools"
	return list + "/" + w.Do("POST", "/api/agents/"+list, key, fmt.Sprintf(`{"tool_type":"custom","tool_name":%q}`, name), 201)["id"].(string)
}

// agentHook is agentServer for a hook.
func (w *twoOrgs) agentHook(key string) string {
	list := w.agent(key) + "/hooks"
	return list + "/" + w.Do("POST", "/api/agents/"+list, key, AgentHook, 201)["id"].(string)
}

// delivery returns the path that sends a message again, which was delivered.
func (w *twoOrgs) delivery(key string) string {
	path := "/api/webhooks/" + w.webhook(key) + "/deliveries"
	w.approval(key)
	var done []map[string]any
	ComesTrue(w.T, "the message is delivered", func() bool {
		done = Objects(w.Do("GET", path+"?outcome=delivered", key, "", 200))
		return len(done) > 0
	})
	if len(done) == 0 {
		w.T.FailNow()
	}
	return path + "/" + done[0]["id"].(string) + "/redeliver"
}

func (w *twoOrgs) key(key string) string {
	return w.Do("POST", "/api/keys", key, fmt.Sprintf(`{"name":%q,"role":"reader"}`, w.name()), 201)["id"].(string)
}

func (w *twoOrgs) run(key string) string {
	return w.Post(Question, "Authorization", "Bearer "+key).Header.Get("Turnpike-Run-Id")
}

// approval returns the id of an approval that waits, of a run that the key has started.
func (w *twoOrgs) approval(key string) string {
	latest := func(query string) string {
		all := Objects(w.Do("GET", "/v1/approvals?status=waiting&limit=1"+query, key, "", 200))
		if len(all) == 0 {
			return ""
		}
		return all[0]["id"].(string)
	}
	before := latest("")
	ctx, leave := context.WithCancel(w.T.Context())
	gone := make(chan struct{})
	r := w.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(GatedQuestion), "Authorization", "Bearer "+key, "Idempotency-Key", w.name()) // so that the approval waits without its client
	go func() {
		defer close(gone)
		if resp, err := w.Client.Do(r); err == nil {
			resp.Body.Close()
		}
	}()
	for {
		if id := latest("&wait=20"); id != "" && id != before {
			leave()
			<-gone
			return id
		}
	}
}

// askedResponses is a request to the Responses API.
const askedResponses = `{"model":"m","input":"hi"}`

// response returns the id of a stored response.
func (w *twoOrgs) response(key string) string {
	a := w.Send("POST", "/v1/responses", strings.NewReader(askedResponses), "Authorization", "Bearer "+key)
	var made struct{ ID string }
	if err := json.Unmarshal(a.Body, &made); err != nil || made.ID == "" {
		w.T.Errorf("%v %s", err, a.Body)
	}
	return made.ID
}

// conversation returns the id of a conversation of the key's org.
func (w *twoOrgs) conversation(key string) string {
	id, _, _ := strings.Cut(w.conversationItem(key), "/")
	return id
}

// chatSession returns the id of a session of a key.
func (w *twoOrgs) chatSession(key string) string {
	id := "of-" + key
	if a := w.Send("PUT", "/v1/sessions/"+id, strings.NewReader(`{"messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer "+key); a.Status != 200 {
		w.T.Errorf("%d %s", a.Status, a.Body)
	}
	return id
}

// conversationItem returns the path of an item of a conversation, after that of conversations.
func (w *twoOrgs) conversationItem(key string) string {
	made := struct {
		ID   string
		Data []struct{ ID string }
	}{}
	for _, ask := range []struct{ method, path, body string }{
		{"POST", "/v1/conversations", `{"items":[{"role":"user","content":"x"}]}`}, {"GET", "/v1/conversations/%s/items", ""},
	} {
		path := strings.ReplaceAll(ask.path, "%s", made.ID)
		a := w.Send(ask.method, path, strings.NewReader(ask.body), "Authorization", "Bearer "+key)
		if err := json.Unmarshal(a.Body, &made); err != nil {
			w.T.Errorf("%v %s", err, a.Body)
		}
	}
	if len(made.Data) != 1 {
		w.T.Errorf("%+v", made)
		return made.ID
	}
	return made.ID + "/items/" + made.Data[0].ID
}

// relay returns the id of a request that was relayed.
func (w *twoOrgs) relay() string {
	return w.Post(Question, "Turnpike-Mcp-Disabled", "true").Header.Get("Turnpike-Request-Id")
}

func (w *twoOrgs) org() string {
	name := w.name()
	w.Do("POST", "/api/orgs", "operator-key", `{"id":"`+name+`"}`, 201)
	return name
}

// as sends the visit to the path and returns the answer, in which the name that
// the path has stands as NAME: what else an answer says must not depend on it.
func (w *twoOrgs) as(authorization, method, path, body string) (int, string) {
	w.T.Helper()
	a := w.Send(method, path, strings.NewReader(body), "Authorization", authorization)
	if a.Header.Get("Turnpike-Served-By") != "" { // relayed: its header is that of the provider
		return a.Status, string(a.Body)
	}
	caches := "no-store"
	if a.Header.Get("Content-Type") == "text/event-stream" {
		caches = "no-cache"
	}
	for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Cache-Control": caches, "Server": ""} {
		if got := a.Header.Get(header); got != want {
			w.T.Errorf("%s %s: %s: %q, want %q", method, path, header, got, want)
		}
	}
	if !strings.HasPrefix(a.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		w.T.Errorf("%s %s: header %v", method, path, a.Header)
	}
	text := string(a.Body)
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if (i == 3 || i == 5 || i == 4 && parts[3] == "runs") && len(part) > 2 {
			text = strings.ReplaceAll(text, part, "NAME")
		}
	}
	return a.Status, text
}

// Every route, every kind of caller, things of one's own, of another
// org, and that are not there. // K07 K09
func TestEveryRouteIsGuarded(t *testing.T) {
	NoLeaks(t)
	table := access()
	routes := routesOf(t)
	if missing := slices.DeleteFunc(slices.Clone(routes), func(r string) bool { return len(table[r].visits) > 0 }); len(missing) > 0 {
		t.Fatalf("these routes have no row in access: %q", missing)
	}
	w := newTwoOrgs(t)
	for _, pattern := range slices.Sorted(maps.Keys(table)) {
		if !slices.Contains(routes, pattern) {
			t.Errorf("access has a row for %q, which is no route", pattern)
			continue
		}
		t.Run(pattern, func(t *testing.T) {
			w.T = t
			method, _, found := strings.Cut(pattern, " ")
			if !found {
				method = "GET"
			}
			w.check(t, method, table[pattern].who, table[pattern].visits)
		})
	}
}

func (w *twoOrgs) check(t *testing.T, method string, who may, visits []visit) {
	refused := map[string]string{} // by principal: the answer, the same for every visit
	none := map[string]string{}    // by visit: the answer to ids that do not exist for the caller
	for _, v := range visits {
		body := func() string {
			if v.body == nil {
				return "{}"
			}
			return v.body(w)
		}
		path := v.path(w)
		for _, p := range slices.Sorted(maps.Keys(w.principals())) { // first those who must not: nothing may change
			want := who.refusal(p)
			if want == 0 {
				continue
			}
			status, text := w.as(w.principals()[p], method, path, body())
			if before := refused[p]; status != want || before != "" && before != text {
				t.Errorf("%s, %s: status %d, want %d: %s (before: %s)", p, v.whose, status, want, text, before)
			}
			refused[p] = text
		}
		for _, p := range slices.Sorted(maps.Keys(w.principals())) {
			if who.refusal(p) != 0 {
				continue
			}
			want := v.status
			if p == "member" && v.member != 0 {
				want = v.member
			}
			status, text := w.as(w.principals()[p], method, path, body())
			if status != want {
				t.Errorf("%s, %s: status %d, want %d: %s", p, v.whose, status, want, text)
			}
			if status == 404 {
				none[v.whose] = text
			}
			if method != "GET" {
				path = v.path(w) // the next one has its own
			}
		}
		if v.whose == "own" && len(visits) >= 3 { // what is one's own is foreign to the other org
			if status, text := w.as("Bearer "+w.stranger, method, path, body()); status != 404 {
				t.Errorf("the other org got %d: %s", status, text)
			}
		}
	}
	missing, compared := none["missing"]
	for whose, text := range none {
		if compared && text != missing {
			t.Errorf("%s: %s\nmissing: %s", whose, text, missing)
		}
	}
}

// routesOf returns the patterns of all routes: of the surfaces, and the few that package httpd
// adds, which it reads from the source.
func routesOf(t *testing.T) []string {
	t.Helper()
	var patterns []string
	for _, rt := range app.Routes() {
		patterns = append(patterns, rt.Pattern)
	}
	if len(patterns) < 20 {
		t.Fatalf("found only %d routes", len(patterns))
	}
	file, err := parser.ParseFile(token.NewFileSet(), "../httpd/routes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "HandleFunc" || f.Sel.Name == "Handle") {
				text, ok := call.Args[0].(*ast.BasicLit)
				if !ok {
					t.Fatal("a route's pattern is not a literal")
				}
				pattern, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Fatal(err)
				}
				patterns = append(patterns, pattern)
			}
		}
		return true
	})
	return patterns
}

// The org follows from the key, whatever else a request says. // K07
func TestARequestCannotNameAnotherOrg(t *testing.T) {
	NoLeaks(t)
	w := newTwoOrgs(t)
	for _, fields := range [][]string{
		{"X-Org-Id", "other"}, {"X-Tenant-Id", "other"}, {"OpenAI-Organization", "other"}, {"Turnpike-Org", "other"},
		{"Forwarded", "for=127.0.0.1;host=other"}, {"X-Forwarded-User", "other"}, {"X-Original-URL", "/api/orgs"}, {"X-Rewrite-URL", "/api/orgs"},
		{"X-HTTP-Method-Override", "DELETE"},
	} {
		a := w.Send("GET", "/api/org?org=other&org_id=other", nil, fields...)
		if a.Status != 200 || !strings.HasPrefix(string(a.Body), `{"id":"o"`) {
			t.Errorf("%q: status %d: %s", fields, a.Status, a.Body)
		}
	}
	a := w.Send("POST", "/api/mcp-servers", strings.NewReader(`{"name":"x","url":"https://example.com/mcp","org":"other"}`))
	if a.Status != 422 {
		t.Errorf("a body that names an org got %d: %s", a.Status, a.Body)
	}
	for _, path := range []string{"/api/mcp-servers/%2e%2e%2forgs", "/api/keys/..%2f..%2forgs%2fother", "/api//orgs", "/api/./orgs", "/API/orgs"} {
		if a := w.Send("GET", path, nil); a.Status < 300 {
			t.Errorf("%s: status %d: %s", path, a.Status, a.Body)
		}
	}
}

// agentServer is an MCP server that is added to agents.
const agentServer = `{"name":"tools","url":"https://example.com/mcp"}`
