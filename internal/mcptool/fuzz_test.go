package mcptool

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

func FuzzDecodeResult(f *testing.F) {
	for _, seed := range []string{`{"content":[{"type":"text","text":"a"}],"isError":true}`, `{"structuredContent":{"a":[1]}}`, `null`, `{"content":[null,{"type":"image","data":"cG5n"}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		frame, err := decodeFrame(append(append([]byte(`{"id":1,"result":`), raw...), '}'))
		if err != nil {
			return
		}
		for _, p := range decodeResult("t", "s", frame.Result).Parts {
			if !utf8.ValidString(p.Text) {
				t.Fatalf("%q is no UTF-8", p.Text)
			}
		}
	})
}

func FuzzListOfTools(f *testing.F) {
	for _, seed := range []string{`{"tools":[{"name":"a","inputSchema":{"x-mcp-header":"A"}}]}`, `{"tools":[null,{"name":"b","annotations":{"readOnlyHint":true}}]}`, `{}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		var p page
		if err := json.Unmarshal(raw, &p); err != nil {
			return
		}
		for _, r := range p.Tools {
			if d, ok := decodeDefinition(r); ok && d.InputSchema != nil && !bytes.Contains(raw, d.InputSchema) {
				t.Fatalf("schema %s is not as sent", d.InputSchema)
			}
		}
		if seen := headerTools(raw); !json.Valid(seen) || jsonscan.Depth(seen) > maxSchemaDepth+4 {
			t.Fatalf("the SDK would see %s", seen)
		}
	})
}

// A stream is judged the same however its bytes arrive, and always ends with
// one frame that answers the call.
func FuzzEventStream(f *testing.F) {
	f.Add([]byte("data: {\"id\":1,\"result\":{}}\n\n"))
	f.Add([]byte(": x\nid: 7\ndata:\n\ndata: {\"id\":2,\"method\":\"ping\"}\r\n\r\ndata: {\"id\":1,\"error\":{\"code\":1,\"message\":\"no\"}}"))
	f.Add([]byte("data: {\"id\":null,\"error\":7}\n\n"))
	c := New(Server{}, &http.Client{}, nil)
	f.Cleanup(func() { _ = c.Close() })
	f.Fuzz(func(t *testing.T, raw []byte) {
		read := func(src io.Reader) string {
			a := &answer{transport: &transport{client: c}, request: &http.Request{Header: http.Header{"Mcp-Protocol-Version": {statelessVersion}}}, exchange: &exchange{}, id: json.RawMessage("1"), method: methodCall}
			body := &closing{io.NopCloser(src), func() {}}
			limit := &capped{body, 1 << 20, nil}
			return string(a.stream(t.Context(), limit, body, limit).read())
		}
		whole := read(bytes.NewReader(raw))
		if split := read(iotest.OneByteReader(bytes.NewReader(raw))); split != whole {
			t.Fatalf("split: %q, whole: %q", split, whole)
		}
		if f, err := decodeFrame([]byte(whole)); err != nil || !f.answers(json.RawMessage("1")) {
			t.Fatalf("%q does not answer the request", whole)
		}
	})
}
