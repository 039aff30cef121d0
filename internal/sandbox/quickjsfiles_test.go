package sandbox_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// JavaScript has the files of its session, as text and as bytes.
func TestFilesOfJavaScript(t *testing.T) {
	m := newManager(t, options(t, sandbox.QuickJS))
	for _, c := range []struct{ name, code, result string }{
		{"text", `writeFile("a.txt", "héllo 😀\0\n"); readFile("a.txt")`, `"héllo 😀\u0000\n"`},
		{"text is kept", `readFile("/work/a.txt", "utf8").length`, "10"},
		{"bytes", `const b = readFile("./a.txt", "bytes"); [b instanceof Uint8Array, b.length, b[1]]`, "[true,13,195]"},
		{"typed arrays", `writeFile("b", new Uint8Array([9, 0, 255, 7]).subarray(1, 3)); writeFile("c", new Uint16Array([1, 513]).buffer); [...readFile("b", "bytes"), ...readFile("c", "bytes")]`, "[0,255,1,0,1,2]"},
		{"a view", `writeFile("b", new DataView(new Uint8Array([1, 2, 3]).buffer, 1, 2)); [...readFile("b", "bytes")]`, "[2,3]"},
		{"an empty file", `writeFile("e", ""); writeFile("f", new Uint8Array(0)); [readFile("e"), readFile("f", "bytes").length]`, `["",0]`},
		{"a shorter one", `writeFile("e", "longer"); writeFile("e", "s"); readFile("e")`, `"s"`},
		{"a half of a character", `writeFile("h", "a\ud800b"); readFile("h")`, `"a�b"`},
		{"directories", `writeFile("out/x/d.txt", "d"); readFile("out/../out/x/d.txt")`, `"d"`},
		{"the list", `listFiles()`, `["a.txt","b","c","e","f","h","out/x/d.txt"]`},
		{"several pieces", `const big = new Uint8Array(2_000_001); for (let i = 0; i < big.length; i += 1000) big[i] = i / 1000;
			writeFile("big", big); const back = readFile("big", "bytes"); [back.length, back.every((v, i) => v === big[i])]`, "[2000001,true]"},
		{"a promise is not needed, and does no harm", `await readFile("out/x/d.txt")`, `"d"`},
		{"names can be used", `const writeFile2 = writeFile; function readFile(x) { return x } readFile(3)`, "3"},
	} {
		if o := run(t, m, js("acme", "s", c.code)); o.Result != c.result || o.Exit != 0 || o.Ended != "" {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// What cannot be done is an error with the path and the cause, and the session goes on.
func TestErrorsOfFilesOfJavaScript(t *testing.T) {
	m := newManager(t, options(t, sandbox.QuickJS))
	run(t, m, js("acme", "s", `writeFile("dir/f", "x"); writeFile("latin1", new Uint8Array([99, 233])); globalThis.n = 0`))
	for _, c := range []struct{ code, want string }{
		{`readFile("none.csv")`, `Error: readFile("none.csv"): there is no such file`},
		{`readFile("dir")`, `readFile("dir"): it is a directory`},
		{`readFile(".")`, `readFile("."): it is a directory`},
		{`writeFile("dir", "x")`, `writeFile("dir"): it is a directory`},
		{`readFile("latin1")`, `readFile("latin1"): it is not text in UTF-8; read its bytes with readFile(path, "bytes")`},
		{`readFile("dir/f/g")`, `readFile("dir/f/g"): `},
		{`writeFile("dir/f/g", "x")`, `writeFile("dir/f/g"): `},
		{`readFile("")`, `readFile(""): the path has 0 bytes`},
		{`readFile("x".repeat(1001))`, `the path has 1001 bytes; use 1 to 1000`},
		{`writeFile("x".repeat(300), "")`, `name too long`},
		{`writeFile("a\0b", "")`, `the path is not valid`},
		{`readFile(7)`, `TypeError: readFile: the path must be a string`},
		{`readFile("dir/f", "latin1")`, `TypeError: readFile: the second argument must be "text", which is the default, or "bytes"`},
		{`writeFile("o.json", {a: 1})`, `TypeError: writeFile: the data must be a string, an ArrayBuffer or a typed array; use JSON.stringify`},
		{`writeFile("o.json")`, `TypeError: writeFile: the data must be a string`},
	} {
		o := run(t, m, js("acme", "s", c.code))
		if o.Exit != 1 || !strings.Contains(o.Stderr, c.want) || o.Ended != "" {
			t.Errorf("%s: %+v", c.code, o)
		}
	}
	if o := run(t, m, js("acme", "s", `let was; try { readFile("none") } catch (e) { n++; was = e instanceof Error } [n, was, listFiles()]`)); o.Result != `[1,true,["dir/f","latin1"]]` {
		t.Errorf("after all of them: %+v", o)
	}
}

// Files outlive the variables, and each session has its own. // E13
func TestFilesOfJavaScriptStayWhenTheStateIsLost(t *testing.T) {
	o := options(t, sandbox.QuickJS)
	m := newManager(t, o)
	run(t, m, js("acme", "s", `writeFile("f", "kept")`))
	late := js("acme", "s", `writeFile("g", "late"); for (;;);`)
	late.Timeout = 300 * time.Millisecond
	if got := run(t, m, late); !strings.Contains(got.Ended, "time limit") {
		t.Errorf("%+v", got)
	}
	m.Close()
	again := newManager(t, o)
	if got := run(t, again, js("acme", "s", `readFile("f") + readFile("g")`)); got.Result != `"keptlate"` || !got.StateLost {
		t.Errorf("%+v", got)
	}
	for _, other := range []sandbox.Request{js("acme", "t", `listFiles()`), js("beta", "s", `listFiles()`)} {
		if got := run(t, again, other); got.Result != "[]" {
			t.Errorf("%s %s: %+v", other.Org, other.Session, got)
		}
	}
}

// The gateway writes files before the code runs, and reads those of the code.
func TestTheGatewayAndJavaScriptShareTheDirectory(t *testing.T) {
	m := newManager(t, options(t, sandbox.QuickJS))
	r := js("acme", "s", `writeFile("out.txt", readFile("in.txt").toUpperCase())`)
	r.Prepare = func(_ context.Context, dir *os.Root) {
		if err := dir.WriteFile("in.txt", []byte("given"), 0o666); err != nil {
			t.Error(err)
		}
	}
	var got []byte
	r.Collect = func(_ context.Context, dir *os.Root, _ []string) {
		var err error
		if got, err = dir.ReadFile("out.txt"); err != nil {
			t.Error(err)
		}
	}
	if o := run(t, m, r); o.Exit != 0 || string(got) != "GIVEN" {
		t.Errorf("%+v, %q", o, got)
	}
	if !m.KeepsFiles(sandbox.JavaScript) || m.KeepsFiles(sandbox.Python) {
		t.Error("only JavaScript has files here")
	}
}

func sparse(dir *os.Root, name string, size int64) error {
	f, err := dir.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

// What has no room is an error for code, which keeps its variables.
func TestTheRoomForFilesOfJavaScript(t *testing.T) {
	m := newManager(t, options(t, sandbox.QuickJS))
	r := js("acme", "s", `let why; try { writeFile("more", "x".repeat(101)) } catch (e) { why = e.message } writeFile("less", "x".repeat(100)); [why, listFiles().length]`)
	r.Prepare = func(_ context.Context, dir *os.Root) {
		for i := range 2 {
			if err := sparse(dir, []string{"a", "b"}[i], sandbox.FileSize-int64(50)); err != nil {
				t.Error(err)
			}
		}
	}
	if got := run(t, m, r); got.Result != `["writeFile(\"more\"): the files of the session would have more than 536870912 bytes together",3]` {
		t.Errorf("bytes: %+v", got)
	}
	r = js("acme", "t", `let last; for (let i = 0; ; i++) { try { writeFile("d/f" + i, "") } catch (e) { last = e.message; break } } last`)
	r.Timeout = time.Minute
	if got := run(t, m, r); got.Result != `"writeFile(\"d/f9999\"): the session would have more than 10000 files"` {
		t.Errorf("number: %+v", got)
	}
	if got := run(t, m, js("acme", "t", `let n = 0; try { writeFile("g", "") } catch { n = 1 } writeFile("d/f1", "old ones can be written"); [n, last.length]`)); got.Result != "[1,66]" {
		t.Errorf("after it: %+v", got)
	}
}

// A file counts in the memory of the interpreter.
func TestAFileNeedsMemoryOfTheInterpreter(t *testing.T) {
	m := newManager(t, options(t, sandbox.QuickJS))
	r := js("acme", "s", `const all = []; let why; try { for (;;) all.push(readFile("f", "bytes")) } catch (e) { why = e.message }
		const n = all.length; all.length = 0; [n > 0 && n < 8, why, readFile("f", "bytes").length]`)
	r.Prepare = func(_ context.Context, dir *os.Root) {
		if err := sparse(dir, "f", 10<<20); err != nil {
			t.Error(err)
		}
	}
	r.Timeout = time.Minute
	if got := run(t, m, r); !strings.HasPrefix(got.Result, `[true,"readFile(\"f\"): there is not enough memory`) || !strings.HasSuffix(got.Result, ",10485760]") {
		t.Errorf("bytes: %+v", got)
	}
	// Memory of the process outside of the interpreter is given back.
	again := js("acme", "s", `let sum = 0; for (let i = 0; i < 200; i++) sum += readFile("f").length; sum`)
	again.Timeout = time.Minute
	if got := run(t, m, again); got.Result != "2097152000" {
		t.Errorf("text: %+v", got)
	}
}
