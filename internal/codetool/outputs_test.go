//go:build unix

package codetool_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// told is the part of a result that is about files.
type told struct {
	Files       []codetool.Kept
	NotProduced []struct{ Path, Error string } `json:"not_produced"`
}

func filesOf(t *testing.T, r tool.Result) (out told) {
	t.Helper()
	if err := json.Unmarshal(r.Structured, &out); err != nil {
		t.Fatalf("%s: %v", r.Structured, err)
	}
	return out
}

// inDirectory is a sandbox whose code has made the files of a directory.
type inDirectory struct {
	path  string
	shown []string // images
}

func (d inDirectory) RunsCommands() bool { return false }

func (d inDirectory) KeepsFiles(sandbox.Language) bool { return true }

func (d inDirectory) Run(ctx context.Context, r sandbox.Request) (sandbox.Outcome, error) {
	root, err := os.OpenRoot(d.path)
	if err != nil {
		return sandbox.Outcome{}, err
	}
	defer root.Close()
	if r.Collect != nil {
		r.Collect(ctx, root, d.shown)
	}
	return sandbox.Outcome{Driver: "fake"}, nil
}

// keeps reads what it is given, and refuses large files.
func keeps(_ context.Context, c tool.Call, name string, body io.ReadSeeker) (codetool.Kept, error) {
	data, err := io.ReadAll(body)
	if len(data) > 10 {
		return codetool.Kept{}, errors.New("it is too large")
	}
	return codetool.Kept{ID: c.Caller.ID + ":" + string(data), Name: path.Base(name), Bytes: int64(len(data))}, err
}

// Files that a call names are kept; of the others it says why not. Nothing outside of the working directory is
// read, whatever the code has put there. // J16 J23
func TestOutputsAreKept(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "work")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "sub"), 0o700), os.WriteFile(filepath.Join(parent, "secret"), []byte("CANARY"), 0o600),
		os.WriteFile(filepath.Join(dir, "a.txt"), []byte("a"), 0o600), os.WriteFile(filepath.Join(dir, "sub", "b.txt"), []byte("b"), 0o600),
		os.WriteFile(filepath.Join(dir, "large"), []byte("more than ten"), 0o600), syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600),
		os.Symlink(filepath.Join(parent, "secret"), filepath.Join(dir, "absolute")), os.Symlink("../secret", filepath.Join(dir, "relative")),
		os.Symlink("a.txt", filepath.Join(dir, "within")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ask := func(paths string) tool.Result {
		r, err := only(t, codetool.Options{Org: "o", Sandbox: inDirectory{path: dir}, Keep: keeps}).Call(t.Context(), tool.Call{
			RunID: "run_1", Caller: tool.Caller{ID: "key"}, Arguments: json.RawMessage(`{"language":"python","code":"1","outputs":` + paths + `}`),
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	got := filesOf(t, ask(`["a.txt","/work/sub/b.txt","./sub/../within"]`))
	for i, want := range []codetool.Kept{
		{ID: "key:a", Name: "a.txt", Path: "a.txt", Bytes: 1, Preview: "a"}, {ID: "key:b", Name: "b.txt", Path: "sub/b.txt", Bytes: 1, Preview: "b"}, {ID: "key:a", Name: "within", Path: "within", Bytes: 1, Preview: "a"},
	} {
		if len(got.Files) != 3 || len(got.NotProduced) != 0 || got.Files[i] != want {
			t.Fatalf("kept: %v", got)
		}
	}
	for path, why := range map[string]string{
		"none": "the code has made no such file", "pipe": "it is not a regular file", "sub": "it is not a regular file", "large": "it is too large",
		"../secret": "it is no file of the working directory", "absolute": "it is no file of the working directory", "relative": "it is no file of the working directory",
		parent + "/secret": "it is no file of the working directory", "a.txt/x": "it is no file of the working directory",
	} {
		got := filesOf(t, ask(`["`+path+`"]`))
		if len(got.Files) != 0 || len(got.NotProduced) != 1 || got.NotProduced[0].Path != path || got.NotProduced[0].Error != why {
			t.Errorf("%s: %v, want %s", path, got, why)
		}
	}
	for _, paths := range []string{`[""]`, `["` + strings.Repeat("x", 1001) + `"]`, `["a","a","a","a","a","a","a","a","a","a","a"]`} {
		if r := ask(paths); !r.IsError || !strings.Contains(r.Parts[0].Text, "outputs") {
			t.Errorf("%.40s: %v", paths, r.Parts)
		}
	}
}

// The result has the begin of a file that is text, of whole characters. // J16
func TestOutputsHaveAPreview(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("é", 1000)
	for name, c := range map[string]struct{ content, want string }{
		"short": {"one\n", "one\n"}, "empty": {"", ""}, "exact": {long[:1024], long[:1024]}, "long": {"x" + long, "x" + long[:1022]}, "image": {"\x89PNG\r\n\x1a\n\x00", ""},
		"nul": {"a\x00b", ""}, "latin1": {"caf\xe9 au lait", ""}, "cut": {"caf\xc3", ""}, "ends badly": {strings.Repeat("a", 1023) + "\xff" + long, strings.Repeat("a", 1023)},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		keep := func(context.Context, tool.Call, string, io.ReadSeeker) (codetool.Kept, error) {
			return codetool.Kept{ID: "f"}, nil
		}
		got := filesOf(t, call(t, codetool.Options{Sandbox: inDirectory{path: dir}, Keep: keep}, `{"language":"python","code":"1","outputs":["`+name+`"]}`))
		if len(got.Files) != 1 || got.Files[0].Preview != c.want {
			t.Errorf("%s: %v, want %q", name, got.Files, c.want)
		}
	}
}

// The model reads which files the request requires. A call that writes one of them keeps it, whatever its outputs; one that does not says nothing
// of it, also if the file is there from an earlier call. // J16
func TestRequiredFilesAreKept(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"new.txt": 0, "both.txt": 0, "old.txt": time.Hour} {
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(filepath.Join(dir, name), []byte(name[:3]), 0o600), os.Chtimes(filepath.Join(dir, name), at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	options := json.RawMessage(`{"files":[{"name":"/work/new.txt","format":"txt","description":"the new\none"},{"name":"both.txt"},{"name":"old.txt"},{"name":"none.txt"},{"name":"link"}]}`)
	code := only(t, codetool.Options{Sandbox: inDirectory{path: dir}, Keep: keeps})
	ask := func(arguments string) told {
		r, err := code.Call(t.Context(), tool.Call{Arguments: json.RawMessage(arguments), Options: options})
		if err != nil {
			t.Fatal(err)
		}
		return filesOf(t, r)
	}
	got := ask(`{"language":"python","code":"1","outputs":["./both.txt"]}`)
	if len(got.Files) != 2 || len(got.NotProduced) != 0 || got.Files[0].Path != "both.txt" || got.Files[1].Path != "new.txt" {
		t.Errorf("kept: %v", got)
	}
	if got := ask(`{"language":"javascript","code":"1"}`); len(got.Files) != 2 || got.Files[0].Path != "new.txt" || len(got.NotProduced) != 0 {
		t.Errorf("JavaScript: %v", got)
	}
	d := code.(interface{ Describe(json.RawMessage) string })
	if text := d.Describe(options); !strings.HasSuffix(text, `:
- "new.txt", format "txt": "the new\none"
- "both.txt"
- "old.txt"
- "none.txt"
- "link"`) {
		t.Errorf("described: %s", text)
	}
	if text := d.Describe(nil); text != "" {
		t.Errorf("described without files: %s", text)
	}
}

// If files cannot be stored, or the sandbox does not give them to the gateway, the result says so.
func TestOutputsThatCannotBeKept(t *testing.T) {
	args := `{"language":"python","code":"1","outputs":["a"]}`
	if r := call(t, codetool.Options{Sandbox: &fake{}}, args); !r.IsError || !strings.Contains(r.Parts[0].Text, "outputs: files cannot be kept here") {
		t.Errorf("without Keep: %v", r.Parts)
	}
	got := filesOf(t, call(t, codetool.Options{Sandbox: &fake{outcome: sandbox.Outcome{Driver: "remote"}}, Keep: keeps}, args))
	if len(got.NotProduced) != 1 || got.NotProduced[0].Error != "the driver remote does not give files to the gateway" {
		t.Errorf("from a service: %v", got)
	}
}

// Python's files come out of every sandbox that works here, also after the time of a call was over.
func TestOutputsOfPython(t *testing.T) {
	for _, driver := range []string{sandbox.Wasm, sandbox.Bwrap, sandbox.Landlock} {
		t.Run(driver, func(t *testing.T) {
			o := sandbox.Options{Drivers: []string{driver}, Program: sandboxtest.Program(t), Dir: filepath.Join(t.TempDir(), "sandbox"), Compiled: sandboxtest.Compiled(), PythonWasm: sandboxtest.PythonWasm(t)}
			m, err := sandbox.New(t.Context(), o)
			if err != nil {
				sandboxtest.Skip(t, "%s does not work here: %v", driver, err)
			}
			defer m.Close()
			of := codetool.Options{Org: "o", Sandbox: m, Keep: keeps}
			got := filesOf(t, call(t, of, `{"language":"python","code":"open('a','w').write('made'); open('b','w').write('too')","outputs":["a","b","c"]}`))
			if len(got.Files) != 2 || got.Files[0].ID != ":made" || got.Files[1].ID != ":too" || len(got.NotProduced) != 1 {
				t.Errorf("told: %v", got)
			}
			got = filesOf(t, call(t, of, `{"language":"python","code":"open('d','w').write('late')\nwhile True: pass","timeout":3,"outputs":["d"]}`))
			if len(got.Files) != 1 || got.Files[0].ID != ":late" {
				t.Errorf("after the time limit: %v", got)
			}
		})
	}
}

const png = "\x89PNG\r\n\x1a\n"

// Images that the code has shown are kept as outputs are, once. One that does not fit is told. // J23
func TestImagesThatAreShownAreKept(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a.png": "one", "figure_1.png": "one", "figure_2.png": "two", "figure_3.png": "more than ten", "figure_4.png": "three", "secret": "CANARY", "figure_5.png": "eno",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "figure_6.png")); err != nil {
		t.Fatal(err)
	}
	keep := func(ctx context.Context, c tool.Call, name string, body io.ReadSeeker) (codetool.Kept, error) {
		kept, err := keeps(ctx, c, name, body)
		sum := sha256.Sum256([]byte(strings.TrimPrefix(kept.ID, ":")))
		kept.SHA256 = hex.EncodeToString(sum[:])
		return kept, err
	}
	shown := []string{"figure_1.png", "figure_2.png", "figure_3.png", "figure_4.png", "figure_5.png", "figure_6.png", "figure_7.png"}
	o := codetool.Options{Sandbox: inDirectory{dir, shown}, Keep: keep}
	for _, c := range []struct{ arguments, kept, missing string }{
		{`{"language":"python","code":"1"}`, ":one :two :three :eno", "figure_3.png figure_6.png figure_7.png"},
		{`{"language":"python","code":"1","outputs":["a.png","/work/figure_3.png","figure_4.png"]}`, ":one :three :two :eno", "/work/figure_3.png figure_6.png figure_7.png"},
	} {
		got := filesOf(t, call(t, o, c.arguments))
		var kept, missing []string
		for _, f := range got.Files {
			kept = append(kept, f.ID)
		}
		for _, f := range got.NotProduced {
			missing = append(missing, f.Path)
		}
		if strings.Join(kept, " ") != c.kept || strings.Join(missing, " ") != c.missing || len(got.NotProduced) > 0 && got.NotProduced[0].Error != "it is too large" {
			t.Errorf("%s: %q, %v", c.arguments, kept, got.NotProduced)
		}
	}
	o = codetool.Options{Sandbox: &fake{outcome: sandbox.Outcome{Driver: "wasm", Notes: []string{"figure 1: TypeError: no\x00"}}}, Keep: keep}
	if r := call(t, o, `{"language":"python","code":"1"}`); r.IsError || !strings.Contains(string(r.Structured), `"note":"Not shown to the user: figure 1: TypeError: no�."`) {
		t.Errorf("a note: %s", r.Structured)
	}
	// Events have the images themselves; the model reads of the files. What is no image, or too large, is not among them.
	for name, content := range map[string]string{"i.png": png, "j.png": png + strings.Repeat("x", 512<<10), "k.png": png + "k"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o = codetool.Options{Sandbox: inDirectory{dir, []string{"i.png", "j.png", "figure_1.png", "figure_6.png", "k.png"}}, Keep: keep}
	r := call(t, o, `{"language":"python","code":"1"}`)
	value, _ := r.Value.(builtin.CodeResult)
	want := []string{base64.StdEncoding.EncodeToString([]byte(png)), base64.StdEncoding.EncodeToString([]byte(png + "k"))}
	if !slices.Equal(value.Images, want) || strings.Contains(string(r.Structured), want[0]) {
		t.Errorf("%d images, %s", len(value.Images), r.Structured)
	}
	// Models that take images see them.
	if n := len(r.Parts); n != 3 || r.Parts[1].Kind != item.Image || r.Parts[1].Data != want[0] || r.Parts[2].Data != want[1] {
		t.Errorf("%d parts: %+v", n, r.Parts)
	}
	for keep, want := range map[bool]bool{true: true, false: false} {
		o := codetool.Options{Sandbox: &fake{}}
		if keep {
			o.Keep = keeps
		}
		if strings.Contains(only(t, o).Definition().Description, "Images that Python shows") != want {
			t.Errorf("described with files: %t", keep)
		}
	}
}

// On the real path, also of code that reached its time limit. // J23
func TestImagesOfPython(t *testing.T) {
	for _, driver := range []string{sandbox.Wasm, sandbox.Bwrap, sandbox.Landlock} {
		t.Run(driver, func(t *testing.T) {
			o := sandbox.Options{Drivers: []string{driver}, Program: sandboxtest.Program(t), Dir: filepath.Join(t.TempDir(), "sandbox"), Compiled: sandboxtest.Compiled(), PythonWasm: sandboxtest.PythonWasm(t)}
			m, err := sandbox.New(t.Context(), o)
			if err != nil {
				sandboxtest.Skip(t, "%s does not work here: %v", driver, err)
			}
			defer m.Close()
			of := codetool.Options{Org: "o", Sandbox: m, Keep: func(_ context.Context, _ tool.Call, name string, body io.ReadSeeker) (codetool.Kept, error) {
				data, err := io.ReadAll(body)
				sum := sha256.Sum256(data)
				return codetool.Kept{ID: name, Name: name, Bytes: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}, err
			}}
			for _, c := range []struct {
				code    string
				timeout int
				outputs []string
				kept    string
			}{
				{sandboxtest.Matplotlib + "plt.plot(1); plt.show()\nplt.plot(2)", 30, nil, "figure_1.png figure_2.png"},
				{"plt.plot(3); plt.savefig('mine.png')", 30, []string{"mine.png"}, "mine.png"}, // left open, and the same image
				{"plt.plot(4); plt.show()", 30, []string{"figure_4.png"}, "figure_4.png"},
				{"plt.plot(5); plt.show()\nwhile True: pass", 3, nil, "figure_5.png"},
			} {
				arguments, err := json.Marshal(map[string]any{"language": "python", "code": c.code, "timeout": c.timeout, "outputs": c.outputs})
				if err != nil {
					t.Fatal(err)
				}
				r := call(t, of, string(arguments))
				got := filesOf(t, r)
				var kept []string
				for _, f := range got.Files {
					kept = append(kept, f.ID)
				}
				if strings.Join(kept, " ") != c.kept || len(got.NotProduced) > 0 {
					t.Errorf("%q: %q, %s", c.code[max(0, len(c.code)-60):], kept, r.Structured)
				}
			}
		})
	}
}
