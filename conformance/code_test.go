package conformance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
)

// codeScript runs the latest text of the user as JavaScript, and says what came of it.
func codeScript(ask chatRequest) turn {
	last := ask.Messages[len(ask.Messages)-1]
	if last.Role != "user" {
		return turn{Text: "It ran.", Usage: tokens(1, 1)}
	}
	code, _ := json.Marshal(last.Content) // a string
	return turn{
		Calls: []seenCall{{ID: fmt.Sprintf("call_%d", len(ask.Messages)), Name: "code_execute", Arguments: fmt.Sprintf(`{"language":"javascript","code":%s}`, code)}},
		Usage: tokens(1, 1),
	}
}

// testCode has the Node client run code with code_interpreter, in a container that several responses share. What it gets is valid in
// the documents of the API. // A07 E13
func testCode(t *testing.T, s *site) {
	up := startUpstream(t, codeScript)
	dir, port := t.TempDir(), upstreamtest.FreePort(t)
	g := &program{owner: t, url: loopback(port), binary: s.gateway, file: filepath.Join(dir, "turnpike.yaml")}
	with := strings.Replace(configFile, "runtime: {stream_mode: live}", "runtime: {stream_mode: live, enable_code_execution: true}", 1)
	text := fmt.Sprintf(with, port, filepath.Join(dir, "data"), up.URL, "[]") + "sandbox: {drivers: [quickjs]}\n"
	if err := os.WriteFile(g.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g.start()
	base := startValidator(t, spectest.Find(t), g.url).URL + "/v1"
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream %t", stream), func(t *testing.T) {
			tools := []object{{"type": "code_interpreter", "container": object{"type": "auto"}}}
			got := answer(t, nodeClient{node: s.node, script: "responses.mjs"}, ask{
				Helper: "code", BaseURL: base, Key: devKey, Other: otherKey, Stream: stream, Request: object{"model": "gpt-test", "tools": tools},
			})
			one := []string{"code_interpreter_call", "message It ran."}
			wantEqual(t, "items", [][]string{one, one, one}, got.Items)
		})
	}
}
