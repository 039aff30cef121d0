package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Required files are plain paths in the working directory, each once. They are said to the tool that runs code. // J16
func TestRequiredFiles(t *testing.T) {
	read := func(files string, servers ...catalog.Server) (asked, error) {
		members, err := surface.Scan(nil, []byte(`{"model":"m","messages":[{"role":"user","content":"x"}],"files":`+files+`}`))
		if err != nil {
			t.Fatal(err)
		}
		return decode(&run.Request{Input: run.Input{Servers: servers}}, members)
	}
	code := catalog.Server{Name: org.BuiltinTools, Tools: []string{"code_execute"}}
	long, wide := strings.Repeat("x", 256), strings.Repeat("d/", 500)+"f"
	names := func(n int) string {
		all := make([]map[string]string, n)
		for i := range all {
			all[i] = map[string]string{"name": fmt.Sprintf("f%d", i)}
		}
		out, _ := json.Marshal(all)
		return string(out)
	}
	for files, param := range map[string]string{
		`[{"name":""}]`: "files[0].name", `[{}]`: "files[0].name", `[{"name":"."}]`: "files[0].name", `[{"name":"a/"}]`: "files[0].name", `[{"name":"/work/"}]`: "files[0].name",
		`[{"name":"../a"}]`: "files[0].name", `[{"name":"a/../../b"}]`: "files[0].name", `[{"name":".."}]`: "files[0].name", `[{"name":"/etc/passwd"}]`: "files[0].name",
		`[{"name":"/work/../etc/passwd"}]`: "files[0].name", `[{"name":"/work//etc/passwd"}]`: "files[0].name", `[{"name":"a\u0000b"}]`: "files[0].name", `[{"name":"a\nb"}]`: "files[0].name",
		`[{"name":"` + long + `"}]`: "files[0].name", `[{"name":"` + wide + `"}]`: "files[0].name",
		`[{"name":"a"},{"name":"a"}]`: "files[1].name", `[{"name":"a"},{"name":"./b/../a"}]`: "files[1].name", `[{"name":"a"},{"name":"/work/a"}]`: "files[1].name",
		`[{"name":"a","path":"b"}]`: "files[0].path", `[{"name":"a","Format":"b"}]`: "files[0].Format", `[{"name":7}]`: "files[0]", `["a"]`: "files[0]", `[null]`: "files[0]", `{"name":"a"}`: "files", `7`: "files",
		`[{"name":"a","format":"` + long + `"}]`: "files[0].format", `[{"name":"a","description":"` + wide + `"}]`: "files[0].description", names(11): "files",
	} {
		_, err := read(files, code)
		var f *fault.Error
		if !errors.As(err, &f) || f.Code != fault.Invalid || f.Param != param || !strings.Contains(f.Message, param) {
			t.Errorf("%.60s: %v", files, err)
		}
	}
	if _, err := read(`[{"name":"a"}]`); err == nil || !strings.Contains(err.Error(), "enable_code_execution: true") {
		t.Errorf("without a tool that runs code: %v", err)
	}
	for _, files := range []string{`null`, `[]`} {
		if a, err := read(files); err != nil || len(a.hosted) != 0 {
			t.Errorf("%s: %v, %v", files, a.hosted, err)
		}
	}
	a, err := read(`[{"name":"/work/out/chart.png","format":"png","description":"of sales"},{"name":"é.csv"}]`, code)
	if err != nil || len(a.hosted) != 1 || len(a.required) != 2 || a.required[0].Path() != "out/chart.png" {
		t.Fatalf("%+v, %v", a, err)
	}
	const want = `{"files":[{"name":"/work/out/chart.png","format":"png","description":"of sales"},{"name":"é.csv"}]}`
	if h := a.hosted[0]; h.Server != org.BuiltinTools || h.Tool != "code_execute" || string(h.Options) != want {
		t.Errorf("%+v: %s", h, h.Options)
	}
	if a, err := read(names(10), code); err != nil || len(a.required) != 10 {
		t.Errorf("ten files: %v", err)
	}
}
