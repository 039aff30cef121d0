package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recording is one exchange with a real provider.
type recording struct {
	name     string
	streamed bool
	request  struct {
		Path string
		Body struct {
			Messages []json.RawMessage
			Tools    []json.RawMessage
		}
	}
	response struct {
		Status  int
		Headers map[string]string
	}
	body     []byte
	expected expected
}

// expected is what a vendor's SDK reads out of the answer.
type expected struct {
	ID, Model       *string
	Text, Reasoning string
	Refusal         *string
	ToolCalls       []struct {
		ID           *string
		Name         string
		ArgumentsRaw *string `json:"arguments_raw"`
		Arguments    json.RawMessage
	} `json:"tool_calls"`
	FinishReason struct {
		Normalized string
		Raw        *string
	} `json:"finish_reason"`
	Usage *struct {
		Input, Output, Total, Reasoning int64
		CachedInput                     int64 `json:"cached_input"`
		CacheWrite                      int64 `json:"cache_write"`
	}
	Error *struct {
		Status   int
		Message  string
		InStream bool `json:"in_stream"`
	}
}

// recordings reads all recordings of the dialect, and skips the test where
// there are none.
func recordings(t testing.TB) []recording {
	t.Helper()
	root := os.Getenv("TURNPIKE_RECORDINGS")
	if root == "" {
		root = filepath.Join(moduleRoot(t), "..", "shared", "recordings")
	}
	var all []recording
	for _, dialect := range []string{"openai-chat", "openai-compat"} {
		dirs, err := filepath.Glob(filepath.Join(root, dialect, "*"))
		if err != nil || len(dirs) == 0 {
			t.Skipf("no recordings in %s", root)
		}
		for _, dir := range dirs {
			all = append(all, readRecording(t, dir))
		}
	}
	return all
}

func readRecording(t testing.TB, dir string) recording {
	t.Helper()
	r := recording{name: filepath.Base(dir)}
	var meta struct{ Streamed bool }
	for name, into := range map[string]any{
		"meta.json": &meta, "request.json": &r.request, "response.json": &r.response, "expected.json": &r.expected,
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil && name != "request.json" {
			t.Fatalf("%s: %v", name, err)
		}
	}
	body, err := os.ReadFile(filepath.Join(dir, "response.body"))
	if err != nil {
		t.Fatal(err)
	}
	r.body, r.streamed = body, meta.Streamed
	return r
}

func byName(t testing.TB, name string) recording {
	t.Helper()
	for _, r := range recordings(t) {
		if r.name == name {
			return r
		}
	}
	t.Fatalf("no recording %s", name)
	return recording{}
}

func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above")
		}
		dir = filepath.Dir(dir)
	}
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
