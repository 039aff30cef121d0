package files_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// code returns the code of an error.
func code(answer map[string]any) string {
	e, _ := answer["error"].(map[string]any)
	return fmt.Sprint(e["code"])
}

// A key uploads files, lists, reads and deletes them. For other members they do not exist. // J17 J13
func TestFilesOfAKey(t *testing.T) {
	NoLeaks(t)
	d := filed(t, NewData(t), "")
	other := d.Do("POST", "/api/keys", "owner-key", `{"name":"other","role":"member"}`, 201)["key"].(string)
	large := strings.Repeat("0123456789abcdef", 200_000) // is in a file of the spool
	one := d.Uploaded("member-key", Upload{Name: "dir/data é.csv", Text: "a,b\n", Fields: []string{"purpose", "user_data"}}, 200)
	two := d.Uploaded("member-key", Upload{Name: "photo.png", Text: large, Fields: []string{"purpose", "vision", "expires_after[anchor]", "created_at", "expires_after[seconds]", "3600"}}, 200)
	id := one["id"].(string)
	if one["object"] != "file" || one["filename"] != "data é.csv" || one["bytes"] != 4.0 || one["purpose"] != "user_data" || one["status"] != "processed" || one["format"] != "csv" || one["expires_at"] != nil {
		t.Errorf("%v", one)
	}
	if two["bytes"] != float64(len(large)) || two["expires_at"].(float64) != two["created_at"].(float64)+3600 {
		t.Errorf("%v", two)
	}
	if got := d.Do("GET", "/v1/files/"+id, "member-key", "", 200); fmt.Sprint(got) != fmt.Sprint(one) {
		t.Errorf("got %v, want %v", got, one)
	}
	a := d.Send("GET", "/v1/files/"+two["id"].(string)+"/content", nil, "Authorization", "Bearer member-key")
	if a.Status != 200 || string(a.Body) != large || !strings.Contains(a.Header.Get("Content-Disposition"), `attachment; filename="photo.png"`) || !strings.Contains(a.Header.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("the content was answered with %d, %d bytes, %v", a.Status, len(a.Body), a.Header)
	}
	for path, want := range map[string]string{
		"/v1/files": "photo.png data é.csv false", "/v1/files?order=asc&limit=1": "data é.csv true", "/v1/files?purpose=vision": "photo.png false",
		"/v1/files?after=" + two["id"].(string): "data é.csv false", "/v1/files?after=" + id: " false",
	} {
		list := d.Do("GET", path, "member-key", "", 200)
		var names []string
		for _, f := range Objects(list) {
			names = append(names, f["filename"].(string))
		}
		if got := strings.Join(names, " ") + fmt.Sprint(" ", list["has_more"]); got != want || list["object"] != "list" {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	for _, path := range []string{"/v1/files/" + id, "/v1/files/" + id + "/content", "/v1/files?after=" + id} {
		foreign, unknown := d.Do("GET", path, other, "", 404), d.Do("GET", strings.Replace(path, id, "file-unknown", 1), other, "", 404)
		if code(foreign) != "file_not_found" || strings.ReplaceAll(fmt.Sprint(foreign), id, "file-unknown") != fmt.Sprint(unknown) {
			t.Errorf("%s: %v differs from %v", path, foreign, unknown)
		}
	}
	d.Do("DELETE", "/v1/files/"+id, other, "", 404)
	if list := d.Do("GET", "/v1/files", other, "", 200); len(Objects(list)) != 0 || list["first_id"] != nil {
		t.Errorf("%v", list)
	}
	if list := d.Do("GET", "/v1/files", "owner-key", "", 200); len(Objects(list)) != 2 {
		t.Errorf("an owner sees %v", list)
	}
	d.Do("DELETE", "/v1/files/"+two["id"].(string), "owner-key", "", 200)
	if got := d.Do("DELETE", "/v1/files/"+id, "member-key", "", 200); got["deleted"] != true || got["id"] != id || got["object"] != "file" {
		t.Errorf("%v", got)
	}
	if got := d.Do("GET", "/v1/files/"+id+"/content", "member-key", "", 404); code(got) != "file_not_found" {
		t.Errorf("%v", got)
	}
}

// Every part of the form counts, or is refused.
func TestUploadsThatAreRefused(t *testing.T) {
	NoLeaks(t)
	d := filed(t, NewData(t), "org_caps: {files: 1}\n")
	for _, c := range []struct {
		name   string
		upload Upload
		param  string
		says   string
	}{
		{"no file", Upload{Fields: []string{"purpose", "user_data"}}, "file", "no part file"},
		{"another purpose", Upload{Name: "a", Text: "x", Fields: []string{"purpose", "batch"}}, "purpose", "use one of user_data, assistants, vision"},
		{"an unknown part", Upload{Name: "a", Text: "x", Fields: []string{"purpos", "vision"}}, "purpos", "unknown part"},
		{"a long value", Upload{Name: "a", Text: "x", Fields: []string{"purpose", strings.Repeat("x", 300)}}, "purpose", "more than 256 bytes"},
		{"an anchor", Upload{Name: "a", Text: "x", Fields: []string{"expires_after[anchor]", "now", "expires_after[seconds]", "3600"}}, "expires_after[anchor]", "use created_at"},
		{"no anchor", Upload{Name: "a", Text: "x", Fields: []string{"expires_after[seconds]", "3600"}}, "expires_after[anchor]", "use created_at"},
		{"too short", Upload{Name: "a", Text: "x", Fields: []string{"expires_after[anchor]", "created_at", "expires_after[seconds]", "3599"}}, "expires_after[seconds]", "from 3600 to 2592000"},
		{"too long", Upload{Name: "a", Text: "x", Fields: []string{"expires_after[anchor]", "created_at", "expires_after[seconds]", "9223372037"}}, "expires_after[seconds]", "from 3600 to 2592000"},
		{"many parts", Upload{Name: "a", Text: "x", Fields: strings.Fields(strings.Repeat("purpose vision ", 9))}, "<nil>", "more than 8 parts"},
		{"a long name", Upload{Name: strings.Repeat("x", 256), Text: "x", Fields: nil}, "file", "at most 255"},
		{"a hidden character", Upload{Name: "a\u202egnp.exe", Text: "x", Fields: nil}, "file", "control character"},
	} {
		got := d.Uploaded("member-key", c.upload, 400)
		if e := got["error"].(map[string]any); fmt.Sprint(e["param"]) != c.param || !strings.Contains(e["message"].(string), c.says) {
			t.Errorf("%s: %v", c.name, e)
		}
	}
	for _, body := range []string{"x", `{"file":"x"}`} {
		if a := d.Send("POST", "/v1/files", strings.NewReader(body), "Authorization", "Bearer member-key", "Content-Type", "application/json"); a.Status != 400 || !strings.Contains(string(a.Body), "must be a form") {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if list := d.Do("GET", "/v1/files", "member-key", "", 200); len(Objects(list)) != 0 {
		t.Errorf("%v", list)
	}
	for _, query := range []string{"?limit=0", "?limit=1001", "?order=up", "?purpose=batch", "?x=1"} {
		d.Do("GET", "/v1/files"+query, "member-key", "", 400)
	}
	d.Uploaded("member-key", Upload{Name: "a", Text: "x"}, 200)
	if got := d.Uploaded("member-key", Upload{Name: "b", Text: "x"}, 409); code(got) != "cap_reached" || !strings.Contains(fmt.Sprint(got), "org_caps.files") {
		t.Errorf("%v", got)
	}
}

// Two hundred uploads at once are all stored, under different ids, and survive a restart.
func TestManyUploadsAtOnce(t *testing.T) {
	NoLeaks(t)
	data := NewData(t)
	d := filed(t, data, "")
	var wait sync.WaitGroup
	for i := range 200 {
		wait.Go(func() {
			body, kind := Upload{Name: fmt.Sprint("f", i), Text: fmt.Sprint("content ", i)}.Form()
			if a := d.Send("POST", "/v1/files", body, "Authorization", "Bearer member-key", "Content-Type", kind); a.Status != 200 {
				t.Errorf("upload %d was answered with %d: %s", i, a.Status, a.Body)
			}
		})
	}
	wait.Wait()
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	d = filed(t, data, "")
	list := Objects(d.Do("GET", "/v1/files", "member-key", "", 200))
	if len(list) != 200 {
		t.Fatalf("%d files", len(list))
	}
	seen := map[string]bool{}
	for _, f := range list {
		seen[f["filename"].(string)] = true
		a := d.Send("GET", "/v1/files/"+f["id"].(string)+"/content", nil, "Authorization", "Bearer member-key")
		if want := "content " + strings.TrimPrefix(f["filename"].(string), "f"); string(a.Body) != want {
			t.Errorf("%s has %q, want %q", f["filename"], a.Body, want)
		}
	}
	if len(seen) != 200 {
		t.Errorf("%d names", len(seen))
	}
}

// A request names files of its key, and the model gets their content, also in an org without MCP servers. The id of
// another provider is passed on as it is. // J17
func TestTheModelGetsTheContentOfFiles(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("1"), Says("2"), Says("3"), Says("4")))
	d := Manage(MustRun(t, Site{Upstream: up.URL, Feature: "none"}.Yaml()))
	other := d.Do("POST", "/api/keys", "owner-key", `{"name":"other","role":"member"}`, 201)["key"].(string)
	file := d.Uploaded("member-key", Upload{Name: "a.csv", Text: "a,b\n"}, 200)["id"].(string)
	image := d.Uploaded("member-key", Upload{Name: "a.png", Text: png}, 200)["id"].(string)
	csv, photo := "data:text/csv", "data:image/png;base64,"+base64.StdEncoding.EncodeToString([]byte(png))
	chat := func(id string) string {
		return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"},{"type":"file","file":{"file_id":%q}}]}]}`, id)
	}
	responses := fmt.Sprintf(`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_id":%q},{"type":"input_image","file_id":%q}]}]}`, file, image)
	d.Ask("/v1/chat/completions", "member-key", chat(file), 200)
	if got := up.Last(); !strings.Contains(got, csv) || !strings.Contains(got, "YSxiCg==") || !strings.Contains(got, `"filename":"a.csv"`) || strings.Contains(got, file) {
		t.Errorf("the provider got %s", got)
	}
	first := d.Ask("/v1/responses", "member-key", responses, 200)["id"].(string)
	if got := up.Last(); !strings.Contains(got, "YSxiCg==") || !strings.Contains(got, photo) || strings.Contains(got, file) {
		t.Errorf("the provider got %s", got)
	}
	if got := string(d.Send("GET", "/v1/responses/"+first+"/input_items", nil, "Authorization", "Bearer member-key").Body); !strings.Contains(got, file) || strings.Contains(got, "YSxiCg==") {
		t.Errorf("the stored input is %s", got)
	}
	d.Do("DELETE", "/v1/files/"+file, "member-key", "", 200) // the conversation has its content
	d.Ask("/v1/responses", "member-key", fmt.Sprintf(`{"model":"m","input":"more","previous_response_id":%q}`, first), 200)
	if got := up.Last(); !strings.Contains(got, "YSxiCg==") || !strings.Contains(got, photo) {
		t.Errorf("the provider got %s", got)
	}
	calls := len(up.Requests())
	for _, c := range []struct{ path, key, body string }{
		{"/v1/chat/completions", "member-key", chat(file)},
		{"/v1/chat/completions", other, chat(image)},
		{"/v1/responses", other, responses},
		{"/v1/responses/input_tokens", other, responses},
		{"/v1/conversations", other, fmt.Sprintf(`{"items":[{"role":"user","content":[{"type":"input_image","file_id":%q}]}]}`, image)},
	} {
		if got := d.Ask(c.path, c.key, c.body, 404); code(got) != "file_not_found" {
			t.Errorf("%s: %v", c.path, got)
		}
	}
	for _, part := range []string{`{"type":"input_file","file_id":%q}`, `{"type":"file","file_id":%q}`, `{"type":"image_url","image_url":{"file_id":%q}}`} {
		body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":[`+part+`]}]}`, image)
		if got := d.Ask("/v1/chat/completions", "member-key", body, 400); code(got) != "invalid_value" || !strings.Contains(fmt.Sprint(got), "in a part that cannot have one") {
			t.Errorf("%s: %v", part, got)
		}
	}
	if n := len(up.Requests()); n != calls {
		t.Errorf("%d requests reached the provider", n-calls)
	}
	d.Send("POST", "/v1/chat/completions", strings.NewReader(chat("file-abc123")), "Authorization", "Bearer member-key")
	if got := up.Last(); got != chat("file-abc123") {
		t.Errorf("the provider got %s", got)
	}
}
