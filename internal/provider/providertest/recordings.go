// Package providertest is what the tests of all provider adapters share:
// recorded exchanges with real providers, and what a correct decoder reads out
// of them.
package providertest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Recording is one exchange with a real provider.
type Recording struct {
	Name     string
	Streamed bool
	Request  struct {
		Path string
		Body json.RawMessage
	}
	Response struct {
		Status  int
		Headers map[string]string
	}
	Body     []byte // of the response
	Expected Expected
}

// Expected is what a vendor's SDK reads out of the answer.
type Expected struct {
	ID, Model       *string
	Text, Reasoning string
	Refusal         *string

	ReasoningSignatures []string `json:"reasoning_signatures"`
	RedactedReasoning   int      `json:"redacted_reasoning"`
	TextSignatures      []string `json:"text_signatures"`

	ToolCalls []struct {
		ID           *string
		Name         string
		ArgumentsRaw *string `json:"arguments_raw"`
		Arguments    json.RawMessage
		Signature    string
	} `json:"tool_calls"`
	ServerToolCalls []struct {
		ID, Type string
	} `json:"server_tool_calls"`

	FinishReason struct {
		Normalized string
		Raw        *string
	} `json:"finish_reason"`
	Usage *struct {
		Input, Output, Total, Reasoning int64
		CachedInput                     int64 `json:"cached_input"`
		CacheWrite                      int64 `json:"cache_write"`
		ToolUseInput                    int64 `json:"tool_use_input"`
		Semantics                       struct {
			// OutputIncludesReasoning is nil where the numbers do not show it.
			OutputIncludesReasoning *bool `json:"output_includes_reasoning"`
		}
	}
	Error *struct {
		Status   int
		Type     string // of Google: the canonical code
		Message  string
		InStream bool `json:"in_stream"`
	}
}

// Root returns the directory of the recordings, which may not be there: the one in
// TURNPIKE_RECORDINGS, or shared/recordings beside the module.
func Root(t testing.TB) string {
	t.Helper()
	if root := os.Getenv("TURNPIKE_RECORDINGS"); root != "" {
		return filepath.Clean(root)
	}
	return filepath.Join(moduleRoot(t), "..", "shared", "recordings")
}

// Recordings returns the recordings of the dialects. Without any, it skips the test, or
// fails it where TURNPIKE_TEST_NO_SKIP is 1.
func Recordings(t testing.TB, dialects ...string) []Recording {
	t.Helper()
	root := Root(t)
	var all []Recording
	for _, dialect := range dialects {
		dirs, err := filepath.Glob(filepath.Join(root, dialect, "*"))
		switch {
		case err == nil && len(dirs) > 0:
		case os.Getenv("TURNPIKE_TEST_NO_SKIP") == "1":
			t.Fatalf("no recordings in %s", root)
		default:
			t.Skipf("no recordings in %s", root)
		}
		for _, dir := range dirs {
			all = append(all, read(t, dir))
		}
	}
	return all
}

// Named returns the recording of that name.
func Named(t testing.TB, all []Recording, name string) Recording {
	t.Helper()
	for _, r := range all {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no recording %s", name)
	return Recording{}
}

func read(t testing.TB, dir string) Recording {
	t.Helper()
	r := Recording{Name: filepath.Base(dir)}
	var meta struct{ Streamed bool }
	for name, into := range map[string]any{
		"meta.json": &meta, "request.json": &r.Request, "response.json": &r.Response, "expected.json": &r.Expected,
	} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatalf("%s/%s: %v", r.Name, name, err)
		}
	}
	body, err := os.ReadFile(filepath.Join(dir, "response.body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Body, r.Streamed = body, meta.Streamed
	return r
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
