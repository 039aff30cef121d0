package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/model"
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
func serve(t testing.TB, h http.HandlerFunc, change ...func(*Options)) *Provider {
	t.Helper()
	srv := httptest.NewServer(h)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
	})
	o := Options{BaseURL: srv.URL + "/v1", Transport: transport}
	for _, c := range change {
		c(&o)
	}
	return New(o)
}

// answer serves one body.
func answer(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// heard collects deltas by kind.
type heard struct {
	deltas                   []model.Delta
	text, reasoning, refusal string
}

func (h *heard) emit(d model.Delta) error {
	h.deltas = append(h.deltas, d)
	switch d.Kind {
	case model.TextDelta:
		h.text += d.Text
	case model.ReasoningDelta:
		h.reasoning += d.Text
	case model.RefusalDelta:
		h.refusal += d.Text
	}
	return nil
}
