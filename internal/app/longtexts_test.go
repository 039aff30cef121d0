package app_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

// An index of PostgreSQL takes at most 2,704 bytes of a row: what clients and admins send that is stored in one is refused or kept as a
// digest when it is longer.
func TestLongTextsNeverMeetAnIndex(t *testing.T) {
	NoLeaks(t)
	o := postgrestest.New(t)
	variables := Environment()
	variables["DATABASE"], variables["MASTER"] = o.URL, MasterKey
	yaml := "operator_key: operator-key\nmaster_key: env:MASTER\n" +
		Site{Upstream: NewUpstream(t, SaysChat("hello")).URL, Runtime: "buckets: [{name: docs}], model_lists: allow"}.Yaml() +
		fmt.Sprintf("\ndatabase: env:DATABASE\npostgres: {schema: %q, pool: 6}\nreplica: {linger: 0s}\n", o.Schema)
	g := MustRunWith(t, t.TempDir(), yaml, variables, app.Options{})
	long := "g-" + noise(3000)
	ask := func(key, method, path, body string, fields ...string) {
		t.Helper()
		fields = append([]string{"Authorization", "Bearer " + key, "Content-Type", "application/json"}, fields...)
		a := g.Send(method, path, strings.NewReader(body), fields...)
		if a.Status >= http.StatusInternalServerError {
			t.Errorf("%s %.60s %.80s is answered %d: %.300s", method, path, body, a.Status, a.Body)
		}
	}
	const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]%s}`
	const response = `{"model":"m","input":"hi"%s}`
	for _, body := range []string{
		fmt.Sprintf(`,"user":%q`, long), fmt.Sprintf(`,"safety_identifier":%q`, long), fmt.Sprintf(`,"session_id":%q`, long),
		fmt.Sprintf(`,"metadata":{"user_id":%q}`, long), fmt.Sprintf(`,"conversation":%q,"previous_response_id":%q`, long, long),
		fmt.Sprintf(`,"prompt_cache_key":%q`, long), fmt.Sprintf(`,"tools":[{"type":"function","name":%q,"function":{"name":%q}}]`, long, long),
		fmt.Sprintf(`,"user":%q,"model":%q`, long[:256], "g-"+noise(254)),
	} {
		ask("member-key", "POST", "/v1/chat/completions", fmt.Sprintf(chat, body))
		ask("member-key", "POST", "/v1/responses", fmt.Sprintf(response, body))
	}
	names := make([]string, 8)
	for i := range names {
		names[i] = fmt.Sprint("g-", i, long[10:260])
	}
	for _, model := range []string{long, strings.Join(names, ","), strings.Join(names[:4], ",")} {
		for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/completions"} {
			ask("member-key", "POST", path, fmt.Sprintf(`{"model":%q,"input":"hi","prompt":"hi",
				"messages":[{"role":"user","content":"hi"}]}`, model))
		}
	}
	for _, fields := range [][]string{{"Idempotency-Key", long}, {"X-Request-Id", long}, {"Session-Id", long}, {"X-Session-Id", long}} {
		ask("member-key", "POST", "/v1/chat/completions", fmt.Sprintf(chat, ""), fields...)
		ask("member-key", "POST", "/v1/responses", fmt.Sprintf(response, `,"background":true`), fields...)
		ask("member-key", "POST", "/v1/conversations", `{}`, fields...)
	}
	ask("member-key", "PUT", "/v1/sessions/"+long, `{"messages":[]}`)
	ask("member-key", "PUT", "/api/buckets/docs/files/"+long, "text")
	ask("member-key", "PUT", "/api/buckets/docs/files/"+strings.Repeat(noise(150)+"/", 5)+"x", "text")
	form := "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nuser_data\r\n" +
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"" + long + "\"\r\n\r\nx\r\n--b--\r\n"
	ask("member-key", "POST", "/v1/files", form, "Content-Type", "multipart/form-data; boundary=b")
	for path, body := range map[string]string{
		"/api/keys":        `{"name":%q,"role":"member"}`,
		"/api/mcp-servers": `{"name":%q,"url":"http://127.0.0.1:1/mcp"}`,
		"/api/webhooks":    `{"name":%q,"url":"https://example.com/","events":["*"]}`,
		"/api/agents":      `{"name":%q,"model":"m"}`,
		"/api/tools":       `{"tool_type":"http","name":%q,"description":"x","config":{"url":"http://127.0.0.1:1/"}}`,
	} {
		ask("owner-key", "POST", path, fmt.Sprintf(body, long))
	}
	ask("owner-key", "POST", "/api/agents", fmt.Sprintf(`{"name":"a","model":%q}`, long))
	ask("owner-key", "PUT", "/api/secrets/"+long, `{"value":"x"}`)
	ask("owner-key", "PUT", "/api/settings/"+long, `{"value":"x"}`)
	ask("operator-key", "POST", "/api/orgs", fmt.Sprintf(`{"id":%q}`, long))
	ask("operator-key", "POST", "/api/orgs/o/keys", fmt.Sprintf(`{"name":%q,"role":"member"}`, long))
	ask("member-key", "POST", "/mcp",
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"initialize","params":{"protocolVersion":%q}}`, long, long))
}

// noise returns a text of n characters that cannot be compressed.
func noise(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		sum := sha256.Sum256(fmt.Append(nil, i))
		b.WriteString(hex.EncodeToString(sum[:]))
	}
	return b.String()[:n]
}
