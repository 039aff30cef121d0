package openai

import (
	"encoding/json"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type (
	recording = providertest.Recording
	expected  = providertest.Expected
)

func recordings(t testing.TB) []recording {
	t.Helper()
	return providertest.Recordings(t, "openai-chat", "openai-compat")
}

func byName(t testing.TB, name string) recording {
	t.Helper()
	return providertest.Named(t, recordings(t), name)
}

// recordedRequest is the body of a recorded request.
type recordedRequest struct{ Messages, Tools []json.RawMessage }

func requestOf(t testing.TB, r recording) recordedRequest {
	t.Helper()
	var body recordedRequest
	if err := json.Unmarshal(r.Request.Body, &body); err != nil {
		return recordedRequest{} // one that is not JSON, such as a file
	}
	return body
}

// serve starts a loopback provider and returns a Provider that talks to it.
func serve(t testing.TB, h http.HandlerFunc, change ...func(*wire.Endpoint)) *Provider {
	t.Helper()
	return New(providertest.Serve(t, h, change...), Options{})
}
