package conformance

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// OpenAI's client verifies and reads what the gateway sends. During a rotation
// it does so with the new secret and with the previous one, and with no other. // L10
func TestOpenAIsClientVerifiesWebhooks(t *testing.T) {
	current, previous := webhook.NewSecret(), webhook.NewSecret()
	var keys []webhook.Key
	for _, v := range []secret.Value{current, previous} {
		k, err := webhook.ParseSecret(v)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	var header http.Header
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer srv.Close()
	now := time.Now()
	msg := webhook.Message{ID: "evt_1", Type: "response.completed", At: now, Object: "resp_1"}
	if r := webhook.New(srv.Client()).Send(t.Context(), webhook.Endpoint{URL: srv.URL, Keys: keys}, msg, now); !r.Delivered() {
		t.Fatalf("not delivered: %+v", r)
	}
	for _, v := range []secret.Value{current, previous} {
		client := openai.NewClient(option.WithAPIKey("unused"), option.WithWebhookSecret(v.Reveal()))
		got, err := client.Webhooks.Unwrap(body, header)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != "evt_1" || got.Type != "response.completed" || got.CreatedAt != now.Unix() || got.Data.ID != "resp_1" {
			t.Errorf("the client reads %+v", got)
		}
	}
	stranger := openai.NewClient(option.WithAPIKey("unused"), option.WithWebhookSecret(webhook.NewSecret().Reveal()))
	if _, err := stranger.Webhooks.Unwrap(body, header); err == nil {
		t.Error("the client accepts the signature of another secret")
	}
	body[0] = '['
	if err := stranger.Webhooks.VerifySignature(body, header, option.WithWebhookSecret(current.Reveal())); err == nil {
		t.Error("the client accepts a changed body")
	}
}
