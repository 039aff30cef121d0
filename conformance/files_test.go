package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
)

// drawing makes an image of one pixel, and prints its digest.
const drawing = `import hashlib, zlib, struct
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
png = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(b'\0\xff\0\0')) + chunk(b'IEND', b'')
open('chart.png', 'wb').write(png)
print(hashlib.sha256(png).hexdigest())`

// drawScript makes a chart with Python, and then says the digest that was printed.
func drawScript(ask chatRequest) turn {
	if ask.Messages[len(ask.Messages)-1].Role == "user" {
		arguments, _ := json.Marshal(object{"language": "python", "code": drawing, "outputs": []string{"chart.png"}}) // strings
		return turn{Calls: []seenCall{{ID: "call_1", Name: "code_execute", Arguments: string(arguments)}}, Usage: tokens(1, 1)}
	}
	said := ""
	for _, text := range ask.results() {
		var result struct{ Stdout string }
		_ = json.Unmarshal([]byte(text), &result) // that of another tool has none
		said += result.Stdout
	}
	return turn{Text: regexp.MustCompile(`[0-9a-f]{64}`).FindString(said), Usage: tokens(1, 1)}
}

// testFiles has the Node client get an image that Python has made, over chat and the Responses API. // G09 J16 J20 J23
func testFiles(t *testing.T, s *site) {
	up := startUpstream(t, drawScript)
	dir, port := t.TempDir(), upstreamtest.FreePort(t)
	givePython(t, dir)
	g := &program{owner: t, url: loopback(port), binary: s.gateway, file: filepath.Join(dir, "turnpike.yaml")}
	with := strings.Replace(configFile, "runtime: {stream_mode: live}", "runtime: {stream_mode: live, enable_code_execution: true}", 1)
	text := fmt.Sprintf(with, port, filepath.Join(dir, "data"), up.URL, "[]") + "sandbox: {drivers: [wasm]}\n"
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	for told, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			got := answer(t, nodeClient{node: s.node, script: "files.mjs"}, ask{
				BaseURL: g.url + "/v1", Key: devKey, Stream: stream, Request: object{"model": "gpt-test"},
			})
			const printed = "the digest that was printed"
			wantEqual(t, "files", [][]string{
				{printed, fmt.Sprintf("chart.png round 0 told %d", told), "attributed to its call", "report.pdf not_produced"},
				{printed, fmt.Sprintf("container_file_citation chart.png told %d", told), "of the container of the call"},
			}, got.Items)
		})
	}
}
