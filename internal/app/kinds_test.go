package app_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// An image that the provider does not fetch is fetched within the outbound policy; one
// that it does not take is refused with its place. // P22
func TestImagesForAProviderOfKindAnthropic(t *testing.T) {
	NoLeaks(t)
	images := http.NewServeMux()
	images.HandleFunc("/i.png", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("\x89PNG\r\n\x1a\n0000")) })
	images.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/i.png", http.StatusFound) })
	images.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, app.MaxFetchedFile+1)) })
	web := httptest.NewServer(images)
	t.Cleanup(web.Close)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
		_, _ = w.Write([]byte(`{"type":"message","id":"msg_1","model":"m","content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":2}}`))
	})
	g := MustRun(t, Claude(Site{Upstream: up.URL, Servers: []string{`name: s, url: "http://127.0.0.1:9999/mcp"`}}, ""))
	for _, tt := range []struct {
		name, url, key string
		status         int
		want           string // of the answer, or of the request that was sent
	}{
		{"fetched", web.URL + "/i.png", "owner-key", 200, `"source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgowMDAw"}`},
		{"not there", web.URL + "/no.png", "owner-key", 400, `"message":"messages[0].content[1].image_url: the URL could not be fetched: its server answered 404","type":"invalid_request_error","param":"messages[0].content[1].image_url","code":"unsupported_value"`},
		{"moved", web.URL + "/moved", "owner-key", 400, `the URL could not be fetched: its server cannot be reached, or redirects to another URL`},
		{"too large", web.URL + "/large", "owner-key", 400, `the file at the URL is larger than 20 MiB`},
		{"not taken", "data:image/tiff;base64,AA==", "owner-key", 400, `"param":"messages[0].content[1].image_url","code":"unsupported_value"`},
		{"forbidden", "http://10.0.0.1/i.png", "owner-key", 403, `"message":"outbound_ssrf_blocked: ssrf_blocked:private:10.0.0.1; the outbound policy refuses the URL at messages[0].content[1].image_url","type":"permission_error","param":"messages[0].content[1].image_url","code":"outbound_ssrf_blocked","setting":"outbound.ssrf.allowlist_cidrs"`},
		{"forbidden, told to a member", "http://10.0.0.1/i.png", "member-key", 403, `"message":"outbound_ssrf_blocked: ssrf_blocked:private; the outbound policy refuses the URL at messages[0].content[1].image_url"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(up.Requests())
			body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"?"},{"type":"image_url","image_url":{"url":%q}}]}]}`, tt.url)
			a := g.Post(body, "Authorization", "Bearer "+tt.key)
			sent := up.Requests()[before:]
			said := string(a.Body)
			if tt.status == 200 && len(sent) == 1 {
				said = string(sent[0].Body)
			}
			if a.Status != tt.status || !strings.Contains(said, tt.want) || (len(sent) == 1) != (tt.status == 200) {
				t.Errorf("status %d after %d requests: %s\nsaid %s", a.Status, len(sent), a.Body, said)
			}
		})
	}
}
