package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

// examined runs doctor on a configuration whose data directory has the directory of buckets.
func examined(t *testing.T, configuration string, program []string) string {
	t.Helper()
	noLeaks(t)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "data", "blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "t.yaml")
	text := "data: ./data\nproviders: [{name: demo, kind: demo, models: [demo]}]\noutbound: {ssrf: {allowlist_cidrs: [127.0.0.1/32]}}\n" + configuration
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) { return "CANARY-key-of-the-bucket", name == "BUCKET_KEY" }
	var out strings.Builder
	Main(t.Context(), Process{Args: []string{"doctor", "-c", file}, Env: env, Stdout: &out, Stderr: &out, Program: program})
	if strings.Contains(out.String(), "CANARY") {
		t.Errorf("a secret is shown:\n%s", out.String())
	}
	return out.String()
}

// mustSay fails the test unless the lines are in the text.
func mustSay(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// Doctor runs code in the sandbox that is configured, and proposes one if none is.
func TestDoctorTriesTheSandbox(t *testing.T) {
	program := sandboxtest.Program(t)
	out := examined(t, "sandbox: {drivers: [quickjs, wasm]}\n", program)
	mustSay(t, out, "well       sandbox javascript: ran 6*7 with the driver quickjs")
	if !strings.Contains(out, "wrong      sandbox python: the sandbox driver wasm does not work here: python.wasm: ") || !strings.Contains(out, "turnpike sandbox list shows them\n") {
		t.Errorf("without python.wasm:\n%s", out)
	}
	mustSay(t, examined(t, "sandbox: {drivers: [quickjs]}\n", program), "not tried  sandbox python: no driver in sandbox.drivers runs it")
	if out := examined(t, "", program); !strings.Contains(out, "not tried  sandbox code_execute: sandbox.drivers is not set, so no code runs. These drivers work here: quickjs (javascript)") {
		t.Errorf("without drivers:\n%s", out)
	}
}

// A sandbox service is asked, with its key.
func TestDoctorTriesASandboxService(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer CANARY-key-of-the-bucket" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = fmt.Fprint(w, `{"result":"42"}`)
	}))
	t.Cleanup(service.Close)
	out := examined(t, fmt.Sprintf("sandbox: {url: %q, api_key: env:BUCKET_KEY}\n", service.URL), nil)
	mustSay(t, out, "well       sandbox javascript: ran 6*7 with the driver remote", "well       sandbox python: ran 6*7 with the driver remote")
	out = examined(t, fmt.Sprintf("sandbox: {url: %q}\n", service.URL), nil)
	if !strings.Contains(out, "wrong      sandbox python: ") {
		t.Errorf("without a key:\n%s", out)
	}
}

// Doctor writes, reads and deletes a file, and leaves nothing behind. // E20
func TestDoctorTriesBuckets(t *testing.T) {
	objects := s3mem.New()
	if err := objects.CreateBucket("shared"); err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(gofakes3.New(objects).Server())
	t.Cleanup(service.Close)
	s3 := func(name, endpoint, bucket string) string {
		return fmt.Sprintf("        - {name: %s, kind: s3, endpoint: %q, bucket: %s, prefix: a/, access_key: env:BUCKET_KEY, secret_key: env:BUCKET_KEY}\n", name, endpoint, bucket)
	}
	out := examined(t, "orgs:\n  - id: o\n    runtime:\n      buckets:\n        - {name: drafts}\n"+
		s3("archive", service.URL, "shared")+s3("lost", service.URL, "nothing")+s3("down", "http://127.0.0.1:2000", "shared")+s3("inside", "http://10.0.0.1", "shared"), nil)
	mustSay(t, out, "well       bucket o/drafts: a small file was written to the disk of the buckets, read and deleted",
		"well       bucket o/archive: a small file was written to the service, read and deleted",
		"wrong      bucket o/lost: the service has no bucket with the name nothing",
		"wrong      bucket o/down: the service of the bucket could not be reached, or broke off; a write may have been carried out")
	if !strings.Contains(out, "wrong      bucket o/inside: the outbound policy refuses its address: ") {
		t.Errorf("a private address:\n%s", out)
	}
	left, err := objects.ListBucket("shared", nil, gofakes3.ListBucketPage{})
	if err != nil || len(left.Contents) != 0 {
		t.Errorf("left in the service: %+v, %v", left, err)
	}
}

// A provider that answers, but with something else, is not said to answer with status 200 alone.
func TestDoctorSaysWhatAProviderAnswers(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "<html>") }))
	t.Cleanup(page.Close)
	noLeaks(t)
	file := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("providers: [{name: p, kind: openai, base_url: %q, api_key: env:K}]\n", page.URL)), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	env := func(name string) (string, bool) { return "sk-0123456789abcdef", name == "K" }
	Main(t.Context(), Process{Args: []string{"doctor", "-c", file}, Env: env, Stdout: &out, Stderr: &out})
	mustSay(t, out.String(), "wrong      provider p: answers with status 200, but not with a list of models")
}
