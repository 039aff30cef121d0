//go:build unix

package crash_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// draw makes a file with Python, and prints its digest.
const draw = "import hashlib\ndata = b'drawn ' * 1000\nopen('chart.bin', 'wb').write(data)\nprint(hashlib.sha256(data).hexdigest())"

// drawOnce draws, and then says what the tool has said.
func drawOnce(transcript []message) turn {
	if last := transcript[len(transcript)-1]; last.Role != "user" {
		return turn{text: []string{"Drawn."}}
	}
	arguments, _ := json.Marshal(map[string]any{"language": "python", "code": draw, "outputs": []string{"chart.bin"}}) // texts
	return turn{calls: []call{{"c", "code_execute", string(arguments)}}}
}

// request sends a request with the key of the owner, and returns 0 if no answer came.
func (w *world) request(ctx context.Context, method, path, body, key string) (int, []byte) {
	req, err := http.NewRequestWithContext(ctx, method, w.base()+path, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil
	}
	return resp.StatusCode, data
}

const asksToDraw = `{"model":"m","enable_code_execution":true,"files":[{"name":"chart.bin"}],"messages":[{"role":"user","content":"draw"}]}`

// drawingOptions are those of a world whose gateway runs Python.
func drawingOptions(t *testing.T) options {
	return options{script: drawOnce, runtime: "enable_code_execution: true", more: fmt.Sprintf("sandbox: {drivers: [wasm], python_wasm: %q}\n", sandboxtest.PythonWasm(t))}
}

// compiledPython returns the directory with Python as a gateway has compiled it, below its data directory.
func compiledPython(t *testing.T) (dir string) {
	t.Helper()
	w := newWorld(t, drawingOptions(t))
	p := w.start("")
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	if status, body := w.request(ctx, "POST", "/v1/chat/completions", asksToDraw, ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	w.stop(p)
	return filepath.Join(w.data, "sandbox", "compiled")
}

// A gateway is killed between making a file and answering. The client that asks again gets the file, with the digest of what the code
// has written, once; or, if the result of the call was lost, hears that it was not produced. What is at /v1/files can be read. // J16 J20 J23 P05
func TestFilesOfARunSurviveCrashes(t *testing.T) {
	compiled := compiledPython(t)
	for point, made := range map[string]bool{
		nth(crash.BeforeResult, 1): false, nth(crash.AfterResult, 1): true, nth(crash.BeforeFinish, 1): true,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, drawingOptions(t))
			if err := os.CopyFS(filepath.Join(w.data, "sandbox", "compiled"), os.DirFS(compiled)); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(w.data, 0o700); err != nil { //nolint:gosec // a directory
				t.Fatal(err)
			}
			first := w.start(point)
			w.request(t.Context(), "POST", "/v1/chat/completions", asksToDraw, "k1")
			first.wantKilled(t, "which passes "+point)
			w.start("")
			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			var status int
			var body []byte
			for pause(ctx, 25*time.Millisecond) == nil {
				if status, body = w.request(ctx, "POST", "/v1/chat/completions", asksToDraw, "k1"); status == http.StatusOK {
					break
				}
			}
			var got struct {
				Files []struct{ ID, Name, Filename, Code, SHA256 string }
			}
			if err := json.Unmarshal(body, &got); err != nil || status != http.StatusOK || len(got.Files) != 1 || !strings.Contains(string(body), "Drawn.") {
				t.Fatalf("%v: %d %s", err, status, body)
			}
			one := got.Files[0]
			if one.ID == "" || (one.Code == "not_produced") == made {
				t.Errorf("answered %s", body)
			}
			sum := sha256.Sum256([]byte(strings.Repeat("drawn ", 1000)))
			var list struct{ Data []struct{ ID string } }
			if status, body = w.request(ctx, "GET", "/v1/files", "", ""); status != http.StatusOK || json.Unmarshal(body, &list) != nil || len(list.Data) > 1 || made && len(list.Data) != 1 {
				t.Fatalf("%d %s", status, body)
			}
			for _, f := range list.Data {
				status, content := w.request(ctx, "GET", "/v1/files/"+f.ID+"/content", "", "")
				if digest := sha256.Sum256(content); status != http.StatusOK || digest != sum || made && f.ID != one.ID {
					t.Errorf("%s has the digest %s: %d; the answer has %+v", f.ID, hex.EncodeToString(digest[:]), status, one)
				}
			}
			if all := w.provider.transcripts(); made && !strings.Contains(fmt.Sprint(all[len(all)-1]), hex.EncodeToString(sum[:])) {
				t.Errorf("the model was told %v", all[len(all)-1])
			}
		})
	}
}
