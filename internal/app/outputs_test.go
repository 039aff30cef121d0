package app_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// J16 J20 J23: a file that code has made and listed comes back over /v1/files with the digest that the code printed, for the
// key of the run and for those that manage the org, and for nobody else.
func TestCodeMakesFilesForItsKey(t *testing.T) {
	noLeaks(t)
	python, err := os.ReadFile(sandboxtest.PythonWasm(t))
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "sandbox"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "sandbox", "python.wasm"), python, 0o600); err != nil {
		t.Fatal(err)
	}
	code := `import hashlib, zlib, struct
def chunk(kind, data): return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
png = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1, 1, 8, 2, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(b'\0\xff\0\0')) + chunk(b'IEND', b'')
open('chart.png', 'wb').write(png)
print(hashlib.sha256(png).hexdigest())`
	args, err := json.Marshal(map[string]any{"language": "python", "code": code, "outputs": []string{"chart.png", "report.pdf"}})
	if err != nil {
		t.Fatal(err)
	}
	up := newUpstream(t, script(asks(call{"code_execute", string(args)}), says("done")))
	yaml := "sandbox: {drivers: [wasm]}\n" + site{upstream: up.URL}.withBuiltins(`{builtin_tools: [{name: code_execute}]}`)
	d := manage(mustRunWith(t, data, yaml, environment(), app.Options{Program: sandboxtest.Program(t)}))
	if text, _ := d.post(question).completion(t); text != "done" {
		t.Fatalf("answered %q", text)
	}
	told := strings.Join(up.requests()[1].results(t), "")
	var result struct {
		Stdout string
		Files  []struct {
			ID, Filename, SHA256 string
			Bytes                int
		}
		NotProduced []struct{ Path, Error string } `json:"not_produced"`
	}
	if err := json.Unmarshal([]byte(told), &result); err != nil || len(result.Files) != 1 || len(result.NotProduced) != 1 || result.NotProduced[0].Path != "report.pdf" {
		t.Fatalf("%v: the model is told %s", err, told)
	}
	made := result.Files[0]
	if printed := regexp.MustCompile(`[0-9a-f]{64}`).FindString(result.Stdout); made.SHA256 != printed || made.Filename != "chart.png" {
		t.Errorf("the code printed %s, and the file is %v", printed, made)
	}
	content := d.send("GET", "/v1/files/"+made.ID+"/content", nil)
	if sum := sha256.Sum256(content.body); content.status != 200 || hex.EncodeToString(sum[:]) != made.SHA256 || content.header.Get("Content-Type") != "image/png" {
		t.Errorf("the file is answered with %d, %v", content.status, content.header)
	}
	for key, status := range map[string]int{"owner-key": 200, "member-key": 404} {
		if a := d.send("GET", "/v1/files/"+made.ID, nil, "Authorization", "Bearer "+key); a.status != status {
			t.Errorf("%s gets %d: %s", key, a.status, a.body)
		}
	}
	listed := objects(d.do("GET", "/v1/files?purpose=assistants_output", "owner-key", "", 200))
	if len(listed) != 1 || listed[0]["id"] != made.ID || listed[0]["expires_at"].(float64)-listed[0]["created_at"].(float64) != 30*60 {
		t.Errorf("listed: %v", fmt.Sprint(listed))
	}
	if a := d.send("DELETE", "/v1/files/"+made.ID, nil, "Authorization", "Bearer owner-key"); a.status != 200 {
		t.Errorf("deleted with %d: %s", a.status, a.body)
	}
}
