package app_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime/multipart"
	"strings"
	"sync"
	"testing"
)

// upload is a form of POST /v1/files.
type upload struct {
	name, text string
	fields     []string // names and values of the other parts, in turn
}

// form returns the body and its media type.
func (u upload) form() (*bytes.Buffer, string) {
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	for i := 0; i < len(u.fields); i += 2 {
		_ = w.WriteField(u.fields[i], u.fields[i+1])
	}
	if u.name != "" {
		part, _ := w.CreateFormFile("file", u.name)
		_, _ = part.Write([]byte(u.text))
	}
	_ = w.Close()
	return &body, w.FormDataContentType()
}

// uploaded uploads a file and returns the answer.
func (d documented) uploaded(key string, u upload, want int) (out map[string]any) {
	d.t.Helper()
	body, kind := u.form()
	a := d.send("POST", "/v1/files", body, "Authorization", "Bearer "+key, "Content-Type", kind)
	if err := json.Unmarshal(a.body, &out); err != nil || a.status != want {
		d.t.Fatalf("an upload was answered with %d, want %d: %s", a.status, want, a.body)
	}
	return out
}

// ask sends a request to a path that the document does not describe.
func (d documented) ask(path, key, body string, want int) (out map[string]any) {
	d.t.Helper()
	a := d.send("POST", path, strings.NewReader(body), "Authorization", "Bearer "+key)
	if err := json.Unmarshal(a.body, &out); err != nil || a.status != want {
		d.t.Fatalf("%s answered %d, want %d: %s", path, a.status, want, a.body)
	}
	return out
}

// code returns the code of an error.
func code(answer map[string]any) string {
	e, _ := answer["error"].(map[string]any)
	return fmt.Sprint(e["code"])
}

// A key uploads files, lists, reads and deletes them. For other members they do not exist. // J17 J13
func TestFilesOfAKey(t *testing.T) {
	noLeaks(t)
	d := filed(t, t.TempDir(), "")
	other := d.do("POST", "/api/keys", "owner-key", `{"name":"other","role":"member"}`, 201)["key"].(string)
	large := strings.Repeat("0123456789abcdef", 200_000) // is in a file of the spool
	one := d.uploaded("member-key", upload{"dir/data é.csv", "a,b\n", []string{"purpose", "user_data"}}, 200)
	two := d.uploaded("member-key", upload{name: "photo.png", text: large, fields: []string{"purpose", "vision", "expires_after[anchor]", "created_at", "expires_after[seconds]", "3600"}}, 200)
	id := one["id"].(string)
	if one["object"] != "file" || one["filename"] != "data é.csv" || one["bytes"] != 4.0 || one["purpose"] != "user_data" || one["status"] != "processed" || one["format"] != "csv" || one["expires_at"] != nil {
		t.Errorf("%v", one)
	}
	if two["bytes"] != float64(len(large)) || two["expires_at"].(float64) != two["created_at"].(float64)+3600 {
		t.Errorf("%v", two)
	}
	if got := d.do("GET", "/v1/files/"+id, "member-key", "", 200); fmt.Sprint(got) != fmt.Sprint(one) {
		t.Errorf("got %v, want %v", got, one)
	}
	a := d.send("GET", "/v1/files/"+two["id"].(string)+"/content", nil, "Authorization", "Bearer member-key")
	if a.status != 200 || string(a.body) != large || !strings.Contains(a.header.Get("Content-Disposition"), `attachment; filename="photo.png"`) || !strings.Contains(a.header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the content was answered with %d, %d bytes, %v", a.status, len(a.body), a.header)
	}
	for path, want := range map[string]string{
		"/v1/files": "photo.png data é.csv false", "/v1/files?order=asc&limit=1": "data é.csv true", "/v1/files?purpose=vision": "photo.png false",
		"/v1/files?after=" + two["id"].(string): "data é.csv false", "/v1/files?after=" + id: " false",
	} {
		list := d.do("GET", path, "member-key", "", 200)
		var names []string
		for _, f := range objects(list) {
			names = append(names, f["filename"].(string))
		}
		if got := strings.Join(names, " ") + fmt.Sprint(" ", list["has_more"]); got != want || list["object"] != "list" {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/v1/files/" + id, "/v1/files/" + id + "/content", "/v1/files?after=" + id} {
		foreign, unknown := d.do("GET", path, other, "", 404), d.do("GET", strings.Replace(path, id, "file-unknown", 1), other, "", 404)
		if code(foreign) != "file_not_found" || strings.ReplaceAll(fmt.Sprint(foreign), id, "file-unknown") != fmt.Sprint(unknown) {
			t.Errorf("%s: %v differs from %v", path, foreign, unknown)
		}
	}
	d.do("DELETE", "/v1/files/"+id, other, "", 404)
	if list := d.do("GET", "/v1/files", other, "", 200); len(objects(list)) != 0 || list["first_id"] != nil {
		t.Errorf("%v", list)
	}
	if list := d.do("GET", "/v1/files", "owner-key", "", 200); len(objects(list)) != 2 {
		t.Errorf("an owner sees %v", list)
	}
	d.do("DELETE", "/v1/files/"+two["id"].(string), "owner-key", "", 200)
	if got := d.do("DELETE", "/v1/files/"+id, "member-key", "", 200); got["deleted"] != true || got["id"] != id || got["object"] != "file" {
		t.Errorf("%v", got)
	}
	if got := d.do("GET", "/v1/files/"+id+"/content", "member-key", "", 404); code(got) != "file_not_found" {
		t.Errorf("%v", got)
	}
}

// Every part of the form counts, or is refused.
func TestUploadsThatAreRefused(t *testing.T) {
	noLeaks(t)
	d := filed(t, t.TempDir(), "org_caps: {files: 1}\n")
	for _, c := range []struct {
		name   string
		upload upload
		param  string
		says   string
	}{
		{"no file", upload{fields: []string{"purpose", "user_data"}}, "file", "no part file"},
		{"another purpose", upload{"a", "x", []string{"purpose", "batch"}}, "purpose", "use one of user_data, assistants, vision"},
		{"an unknown part", upload{"a", "x", []string{"purpos", "vision"}}, "purpos", "unknown part"},
		{"a long value", upload{"a", "x", []string{"purpose", strings.Repeat("x", 300)}}, "purpose", "more than 256 bytes"},
		{"an anchor", upload{"a", "x", []string{"expires_after[anchor]", "now", "expires_after[seconds]", "3600"}}, "expires_after[anchor]", "use created_at"},
		{"no anchor", upload{"a", "x", []string{"expires_after[seconds]", "3600"}}, "expires_after[anchor]", "use created_at"},
		{"too short", upload{"a", "x", []string{"expires_after[anchor]", "created_at", "expires_after[seconds]", "3599"}}, "expires_after[seconds]", "from 3600 to 2592000"},
		{"too long", upload{"a", "x", []string{"expires_after[anchor]", "created_at", "expires_after[seconds]", "9223372037"}}, "expires_after[seconds]", "from 3600 to 2592000"},
		{"many parts", upload{"a", "x", strings.Fields(strings.Repeat("purpose vision ", 9))}, "<nil>", "more than 8 parts"},
		{"a long name", upload{strings.Repeat("x", 256), "x", nil}, "file", "at most 255"},
		{"a hidden character", upload{"a\u202egnp.exe", "x", nil}, "file", "control character"},
	} {
		got := d.uploaded("member-key", c.upload, 400)
		if e := got["error"].(map[string]any); fmt.Sprint(e["param"]) != c.param || !strings.Contains(e["message"].(string), c.says) {
			t.Errorf("%s: %v", c.name, e)
		}
	}
	for _, body := range []string{"x", `{"file":"x"}`} {
		if a := d.send("POST", "/v1/files", strings.NewReader(body), "Authorization", "Bearer member-key", "Content-Type", "application/json"); a.status != 400 || !strings.Contains(string(a.body), "must be a form") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if list := d.do("GET", "/v1/files", "member-key", "", 200); len(objects(list)) != 0 {
		t.Errorf("%v", list)
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?order=up", "?purpose=batch", "?x=1"} {
		d.do("GET", "/v1/files"+query, "member-key", "", 400)
	}
	d.uploaded("member-key", upload{name: "a", text: "x"}, 200)
	if got := d.uploaded("member-key", upload{name: "b", text: "x"}, 409); code(got) != "cap_reached" || !strings.Contains(fmt.Sprint(got), "org_caps.files") {
		t.Errorf("%v", got)
	}
}

// Two hundred uploads at once are all stored, under different ids, and survive a restart.
func TestManyUploadsAtOnce(t *testing.T) {
	noLeaks(t)
	data := t.TempDir()
	d := filed(t, data, "")
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			body, kind := upload{name: fmt.Sprint("f", i), text: fmt.Sprint("content ", i)}.form()
			if a := d.send("POST", "/v1/files", body, "Authorization", "Bearer member-key", "Content-Type", kind); a.status != 200 {
				t.Errorf("upload %d was answered with %d: %s", i, a.status, a.body)
			}
		})
	}
	wait.Wait()
	if err := d.stop(); err != nil {
		t.Error(err)
	}
	d = filed(t, data, "")
	list := objects(d.do("GET", "/v1/files", "member-key", "", 200))
	if len(list) != 200 {
		t.Fatalf("%d files", len(list))
	}
	seen := map[string]bool{}
	for _, f := range list {
		seen[f["filename"].(string)] = true
		a := d.send("GET", "/v1/files/"+f["id"].(string)+"/content", nil, "Authorization", "Bearer member-key")
		if want := "content " + strings.TrimPrefix(f["filename"].(string), "f"); string(a.body) != want {
			t.Errorf("%s has %q, want %q", f["filename"], a.body, want)
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d names", len(seen))
	}
}

// A request names files of its key, and the model gets their content, also in an org without MCP servers. The id of
// another provider is passed on as it is. // J17
func TestTheModelGetsTheContentOfFiles(t *testing.T) {
	noLeaks(t)
	up := newUpstream(t, script(says("1"), says("2"), says("3"), says("4")))
	d := manage(MustRun(t, site{upstream: up.URL, feature: "none"}.yaml()))
	other := d.do("POST", "/api/keys", "owner-key", `{"name":"other","role":"member"}`, 201)["key"].(string)
	file := d.uploaded("member-key", upload{name: "a.csv", text: "a,b\n"}, 200)["id"].(string)
	image := d.uploaded("member-key", upload{name: "a.png", text: png}, 200)["id"].(string)
	csv, photo := "data:text/csv", "data:image/png;base64,"+base64.StdEncoding.EncodeToString([]byte(png))
	chat := func(id string) string {
		return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"file","file":{"file_id":%q}}]}]}`, id)
	}
	responses := fmt.Sprintf(`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":%q},{"type":"input_image","file_id":%q}]}]}`, file, image)
	d.ask("/v1/chat/completions", "member-key", chat(file), 200)
	if got := up.last(); !strings.Contains(got, csv) || !strings.Contains(got, "YSxiCg==") || !strings.Contains(got, `"filename":"a.csv"`) || strings.Contains(got, file) {
		t.Errorf("the provider got %s", got)
	}
	first := d.ask("/v1/responses", "member-key", responses, 200)["id"].(string)
	if got := up.last(); !strings.Contains(got, "YSxiCg==") || !strings.Contains(got, photo) || strings.Contains(got, file) {
		t.Errorf("the provider got %s", got)
	}
	if got := string(d.send("GET", "/v1/responses/"+first+"/input_items", nil, "Authorization", "Bearer member-key").body); !strings.Contains(got, file) || strings.Contains(got, "YSxiCg==") {
		t.Errorf("the stored input is %s", got)
	}
	d.do("DELETE", "/v1/files/"+file, "member-key", "", 200) // the conversation has its content
	d.ask("/v1/responses", "member-key", fmt.Sprintf(`{"model":"m","input":"more","previous_response_id":%q}`, first), 200)
	if got := up.last(); !strings.Contains(got, "YSxiCg==") || !strings.Contains(got, photo) {
		t.Errorf("the provider got %s", got)
	}
	calls := len(up.requests())
	for _, c := range []struct{ path, key, body string }{
		{"/v1/chat/completions", "member-key", chat(file)},
		{"/v1/chat/completions", other, chat(image)},
		{"/v1/responses", other, responses},
		{"/v1/responses/input_tokens", other, responses},
		{"/v1/conversations", other, fmt.Sprintf(`{"items":[{"role":"user","content":[{"type":"input_image","file_id":%q}]}]}`, image)},
	} {
		if got := d.ask(c.path, c.key, c.body, 404); code(got) != "file_not_found" {
			t.Errorf("%s: %v", c.path, got)
		}
	}
	for _, part := range []string{`{"type":"input_file","file_id":%q}`, `{"type":"file","file_id":%q}`, `{"type":"image_url","image_url":{"file_id":%q}}`} {
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[`+part+`]}]}`, image)
		if got := d.ask("/v1/chat/completions", "member-key", body, 400); code(got) != "invalid_value" || !strings.Contains(fmt.Sprint(got), "in a part that cannot have one") {
			t.Errorf("%s: %v", part, got)
		}
	}
	if n := len(up.requests()); n != calls {
		t.Errorf("%d requests reached the provider", n-calls)
	}
	d.send("POST", "/v1/chat/completions", strings.NewReader(chat("file-abc123")), "Authorization", "Bearer member-key")
	if got := up.last(); got != chat("file-abc123") {
		t.Errorf("the provider got %s", got)
	}
}
