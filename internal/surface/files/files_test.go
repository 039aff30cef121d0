package files_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// nobody is the header of requests without a key.
var nobody = []string{"Authorization", ""}

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

// filed is a gateway whose org o has a bucket.
func filed(t *testing.T, data, more string) Documented {
	yaml := "operator_key: operator-key\n" + more + Site{Upstream: "http://127.0.0.1:9", Runtime: "buckets: [{name: docs, max_file_mib: 1}]"}.Yaml()
	return Manage(MustRunIn(t, data, yaml, Environment()))
}

// Files are uploaded, listed, downloaded and deleted, and a signed URL gives one to anyone who has it. // E06 E20
func TestFilesOverTheAPI(t *testing.T) {
	NoLeaks(t)
	d := filed(t, NewData(t), "")
	info := d.Do("PUT", "/api/buckets/docs/files/a/%C3%BC%20b.png", "member-key", png, 200)
	if info["path"] != "a/ü b.png" || info["size"] != float64(len(png)) || len(info["sha256"].(string)) != 64 {
		t.Errorf("%v", info)
	}
	d.Do("PUT", "/api/buckets/docs/files/z.html", "member-key", "<script>alert(1)</script>", 200)
	list := d.Do("GET", "/api/buckets/docs/files?prefix=a/", "reader-key", "", 200)
	if files := Objects(list); len(files) != 1 || files[0]["path"] != "a/ü b.png" || list["more"] != false {
		t.Errorf("%v", list)
	}
	signed := d.SignedPath("a/ü b.png")
	for _, one := range []struct {
		path   string
		header []string
		body   string
		kind   string
	}{
		{"/api/buckets/docs/files/a/%C3%BC%20b.png", []string{"Authorization", "Bearer reader-key"}, png, "image/png"},
		{signed, nobody, png, "image/png"},
		{d.SignedPath("z.html"), nobody, "<script>alert(1)</script>", "application/octet-stream"},
	} {
		a := d.Send("GET", one.path, nil, one.header...)
		if a.Status != 200 || string(a.Body) != one.body {
			t.Errorf("%s: %d %q", one.path, a.Status, a.Body)
		}
		for name, want := range map[string]string{
			"Content-Type": one.kind, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", one.path, name, got, want)
			}
		}
		if !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment; ") || !strings.Contains(a.Header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %v", one.path, a.Header)
		}
	}
	at := strings.Index(signed, "sig=") + len("sig=")
	for _, changed := range []string{strings.Replace(signed, "exp=", "exp=1", 1), signed[:at], signed[:at] + "AAAA", strings.Replace(signed, "/v1/blobs/", "/v1/blobs/W", 1)} {
		if a := d.Send("GET", changed, nil, nobody...); a.Status != 403 || !strings.Contains(string(a.Body), "invalid_signed_url") {
			t.Errorf("%s: %d %s", changed, a.Status, a.Body)
		}
	}
	if a := d.Send("HEAD", signed, nil, nobody...); a.Status != 403 {
		t.Errorf("HEAD: %d", a.Status)
	}
	d.Do("DELETE", "/api/buckets/docs/files/a/%C3%BC%20b.png", "member-key", "", 200)
	if a := d.Send("GET", signed, nil, nobody...); a.Status != 404 {
		t.Errorf("of a deleted file: %d %s", a.Status, a.Body)
	}
	rows := string(d.Send("GET", "/api/audit", nil, "Authorization", "Bearer owner-key").Body)
	for _, want := range []string{
		fmt.Sprintf(`"resource":"file","id":"docs/a/ü b.png","action":"upload","after":{"size":%d,"sha256":%q}`, len(png), info["sha256"]),
		`"resource":"file","id":"docs/a/ü b.png","action":"delete"`,
	} {
		if !strings.Contains(rows, want) {
			t.Errorf("the audit log has no %s: %s", want, rows)
		}
	}
	if n := strings.Count(rows, `"resource":"file"`); n != 3 {
		t.Errorf("%d rows for 2 uploads and a deletion", n)
	}
}

// What does not fit, or is no path, or is not allowed to the key, is refused with the reason.
func TestFilesThatAreRefused(t *testing.T) {
	NoLeaks(t)
	d := filed(t, NewData(t), "org_caps: {files: 1}\n")
	code := func(method, path, key, body string, want int) string {
		t.Helper()
		e, _ := d.Do(method, path, key, body, want)["error"].(map[string]any)
		return fmt.Sprint(e["code"])
	}
	made := 0
	newKey := func(more string) string {
		made++
		return d.Do("POST", "/api/keys", "owner-key", fmt.Sprintf(`{"name":"k%d","role":"member",%s}`, made, more), 201)["key"].(string)
	}
	const file = "/api/buckets/docs/files/x"
	d.Do("PUT", file, "owner-key", "x", 200)
	for _, c := range []struct {
		method, path, key, body string
		status                  int
		code                    string
	}{
		{"PUT", "/api/buckets/docs/files/y", "owner-key", "x", 409, "cap_reached"},
		{"PUT", file, "owner-key", strings.Repeat("x", 1<<20+1), 409, "cap_reached"},
		{"PUT", "/api/buckets/docs/files/a%00b", "owner-key", "x", 400, "invalid_value"},
		{"PUT", "/api/buckets/docs/files/a%5Cb", "owner-key", "x", 400, "invalid_value"},
		{"PUT", "/api/buckets/docs/files/a/", "owner-key", "x", 400, "invalid_value"},
		{"PUT", "/api/buckets/docs/files/", "owner-key", "x", 400, "invalid_value"},
		{"GET", "/api/buckets/docs/files?limit=1001", "owner-key", "", 400, "invalid_value"},
		{"GET", "/api/buckets/docs/files?order=x", "owner-key", "", 400, "unknown_parameter"},
		{"POST", "/api/buckets/docs/signed-urls", "owner-key", `{"path":"x","expires_in_seconds":3601}`, 400, "invalid_value"},
		{"POST", "/api/buckets/docs/signed-urls", "owner-key", `{"path":"x","expires_in":3600}`, 400, "unknown_parameter"},
		{"POST", "/api/buckets/docs/signed-urls", "owner-key", `{"path":"none"}`, 404, "not_found"},
		{"PUT", file, newKey(`"read_only":true`), "x", 403, "tool_not_allowed"},
		{"DELETE", file, newKey(`"tools":["storage_read"]`), "", 403, "tool_not_allowed"},
		{"GET", file, newKey(`"tools":["search_*"]`), "", 403, "tool_not_allowed"},
		{"GET", file, newKey(`"servers":[]`), "", 403, "tool_not_allowed"},
		{"PUT", file, "reader-key", "x", 403, "role_not_allowed"},
	} {
		if got := code(c.method, c.path, c.key, c.body, c.status); got != c.code {
			t.Errorf("%s %s: %s, want %s", c.method, c.path, got, c.code)
		}
	}
	a := d.Send("GET", file, nil, "Authorization", "Bearer "+newKey(`"tools":["storage_*"]`))
	if a.Status != 200 || string(a.Body) != "x" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// Signed URLs begin with public_url. Without it, only a request to this machine gets one.
func TestTheBaseOfSignedURLs(t *testing.T) {
	NoLeaks(t)
	const asked = `{"path":"x"}`
	d := filed(t, NewData(t), "public_hosts: [gateway.example.com]\n")
	d.Do("PUT", "/api/buckets/docs/files/x", "owner-key", "x", 200)
	r := d.Request(t.Context(), "POST", "/api/buckets/docs/signed-urls", strings.NewReader(asked))
	r.Host = "gateway.example.com"
	a, err := d.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(a.Body)
	if err := errors.Join(err, a.Body.Close()); err != nil || a.StatusCode != 501 || !strings.Contains(string(text), "public_url") {
		t.Errorf("%d %s, %v", a.StatusCode, text, err)
	}
	public := filed(t, NewData(t), "public_url: https://gateway.example.com/turnpike/\n")
	public.Do("PUT", "/api/buckets/docs/files/x", "owner-key", "x", 200)
	if got := public.Do("POST", "/api/buckets/docs/signed-urls", "owner-key", asked, 200)["signed_url"].(string); !strings.HasPrefix(got, "https://gateway.example.com/turnpike/v1/blobs/") {
		t.Error(got)
	}
}

// A deleted org leaves no files, its signed URLs are void, and another org sees none of it. // E20
func TestADeletedOrgLeavesNoFiles(t *testing.T) {
	NoLeaks(t)
	data := NewData(t)
	d := filed(t, data, "")
	d.Do("POST", "/api/orgs", "operator-key", `{"id":"gone"}`, 201)
	key := d.Do("POST", "/api/orgs/gone/keys", "operator-key", `{"name":"k","role":"owner"}`, 201)["key"].(string)
	d.Do("PATCH", "/api/org/runtime", key, `{"buckets":[{"name":"docs"}]}`, 200)
	d.Do("PUT", "/api/buckets/docs/files/x", key, "x", 200)
	if files := Objects(d.Do("GET", "/api/buckets/docs/files", "owner-key", "", 200)); len(files) != 0 {
		t.Errorf("another org sees %v", files)
	}
	signed := d.Do("POST", "/api/buckets/docs/signed-urls", key, `{"path":"x"}`, 200)["signed_url"].(string)
	d.Do("PUT", "/api/buckets/docs/files/kept", "owner-key", "x", 200)
	d.Do("DELETE", "/api/orgs/gone", "operator-key", "", 200)
	if a := d.Send("GET", strings.TrimPrefix(signed, d.URL), nil, nobody...); a.Status != 404 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	left, err := os.ReadDir(filepath.Join(data, app.FilesDirectory))
	if err != nil || len(left) != 1 || !strings.HasPrefix(left[0].Name(), "o@") {
		t.Errorf("%v, %v", left, err)
	}
}

// No log line has the path of a file or what makes a URL valid.
func TestLogsHaveNoSignedURLs(t *testing.T) {
	NoLeaks(t)
	d := filed(t, NewData(t), "")
	d.Do("PUT", "/api/buckets/docs/files/canary-path", "owner-key", "x", 200)
	signed := d.SignedPath("canary-path")
	if a := d.Send("GET", signed, nil, nobody...); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(signed, "/v1/blobs/"), "?")
	log := d.Log
	for _, canary := range []string{"canary-path", id, signed[strings.Index(signed, "sig=")+4:]} {
		if strings.Contains(log.String(), canary) {
			t.Errorf("the log contains %s", canary)
		}
	}
	if !strings.Contains(log.String(), `"a file was written to a bucket"`) || !strings.Contains(log.String(), `/v1/blobs/{id}`) {
		t.Errorf("%s", log.String())
	}
}

// A backup has the files of buckets, and a restore puts them back. A damaged one is refused.
func TestABackupHasTheFilesOfBuckets(t *testing.T) {
	NoLeaks(t)
	data := NewData(t)
	d := filed(t, data, "")
	d.Do("PUT", "/api/buckets/docs/files/a/x.txt", "owner-key", "hello", 200)
	archive := filepath.Join(t.TempDir(), "backup.tar")
	if status, out := Turnpike(t, "backup", "--data", data, archive); status != 0 || !strings.Contains(out, "files.tar: ") {
		t.Fatalf("status %d: %s", status, out)
	}
	restored := filepath.Join(t.TempDir(), "data")
	if status, out := Turnpike(t, "restore", "--data", restored, archive); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	again := filed(t, restored, "")
	a := again.Send("GET", "/api/buckets/docs/files/a/x.txt", nil, "Authorization", "Bearer owner-key")
	if a.Status != 200 || string(a.Body) != "hello" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// A run writes a file, lists it and reads it, and gets a URL for a file that is not text. The URL works. // E06 E07
func TestARunUsesFiles(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		switch strings.Count(string(got.Body), `"role":"tool"`) {
		case 0:
			Asks(Use("storage_write", `{"path":"a.txt","content":"seven"}`)).Write(w)
		case 1:
			Asks(Use("storage_read", `{"operation":"list"}`), Use("storage_read", `{"operation":"download","path":"a.txt"}`), Use("storage_read", `{"operation":"download","path":"b.png"}`)).Write(w)
		default:
			Says("done").Write(w)
		}
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.WithBuiltins(`{buckets: [{name: docs}], builtin_tools: [{name: storage_read}, {name: storage_write}]}`)))
	d.Do("PUT", "/api/buckets/docs/files/b.png", "owner-key", png, 200)
	if a := d.Post(Question); a.Status != 200 || !strings.Contains(string(a.Body), "done") {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	told := up.Requests()[2].Results(t)
	if len(told) != 4 || told[0] != `{"bucket":"docs","path":"a.txt","size":5}` || !strings.Contains(told[1], `"path":"b.png"`) || told[2] != "seven" {
		t.Fatalf("%q", told)
	}
	var link struct {
		SignedURL string `json:"signed_url"`
	}
	if err := json.Unmarshal([]byte(told[3]), &link); err != nil || !strings.HasPrefix(link.SignedURL, d.URL) {
		t.Fatalf("%s, %v", told[3], err)
	}
	if a := d.Send("GET", strings.TrimPrefix(link.SignedURL, d.URL), nil, nobody...); a.Status != 200 || string(a.Body) != png {
		t.Errorf("%d %q", a.Status, a.Body)
	}
}

// A bucket of the kind s3, with credentials of the vault, over the API. What the service refuses is told. // E20
func TestABucketOfAService(t *testing.T) {
	NoLeaks(t)
	stored := s3mem.New()
	if err := stored.CreateBucket("shared"); err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(gofakes3.New(stored).Server())
	t.Cleanup(service.Close)
	d := Manage(MustRun(t, strings.Replace(Site{Upstream: "http://127.0.0.1:9"}.WithVault(), "    runtime: {}\n", "", 1)))
	d.Do("PUT", "/api/secrets/key", "owner-key", `{"value":"a secret"}`, 200)
	set := func(bucket, key string, want int) map[string]any {
		t.Helper()
		return d.Do("PATCH", "/api/org/runtime", "owner-key", fmt.Sprintf(`{"buckets":[{"name":"docs","kind":"s3","endpoint":%q,"bucket":%q,"prefix":"o/","access_key":"secret:key","secret_key":%q}]}`, service.URL, bucket, key), want)
	}
	for _, key := range []string{"env:TOKEN", "file:/etc/passwd", "a literal"} {
		set("shared", key, 422)
	}
	set("shared", "secret:key", 200)
	d.Do("PUT", "/api/buckets/docs/files/a/x.txt", "owner-key", "hello", 200)
	if _, err := stored.HeadObject("shared", "o/a/x.txt"); err != nil {
		t.Error(err)
	}
	if files := Objects(d.Do("GET", "/api/buckets/docs/files", "owner-key", "", 200)); len(files) != 1 || files[0]["path"] != "a/x.txt" {
		t.Errorf("%v", files)
	}
	if a := d.Send("GET", d.SignedPath("a/x.txt"), nil, nobody...); a.Status != 200 || string(a.Body) != "hello" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	set("another", "secret:key", 200)
	if e := d.Do("GET", "/api/buckets/docs/files", "owner-key", "", 502)["error"].(map[string]any); e["code"] != "bucket_failed" || !strings.Contains(e["message"].(string), "another") {
		t.Errorf("%v", e)
	}
	set("shared", "secret:none", 200)
	if e := d.Do("GET", "/api/buckets/docs/files", "owner-key", "", 502)["error"].(map[string]any); !strings.Contains(e["message"].(string), "secret_key") {
		t.Errorf("%v", e)
	}
}
