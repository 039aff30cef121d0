package sandbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

func TestJavaScript(t *testing.T) {
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}})
	for _, c := range []struct{ name, code, stdout, stderr, result string }{
		{"an expression", "1+2", "", "", "3"},
		{"a text", "'a' + 'ü'", "", "", `"aü"`},
		{"an object", "({a:[1,'x',null]})", "", "", `{"a":[1,"x",null]}`},
		{"output", "console.log('a', 1, {b: 2}); print('c'); console.error('no')", "a 1 {\"b\":2}\nc\n", "no\n", ""},
		{"a declaration has no value", "const kept = 41", "", "", ""},
		{"variables survive", "kept + 1", "", "", "42"},
		{"await outside of a function", "await Promise.resolve(7)", "", "", "7"},
		{"a function, an error, a cycle", "{const c={};c.c=c;" +
			"console.log(()=>1, c, -0, 1n, Symbol('s'))}", "[function anonymous] {\"c\":[Circular]} -0 1 Symbol(s)\n", "", ""},
		{"a promise as the value", "(async () => ({ answer: 42 }))()", "", "", `{"answer":42}`},
		{"a map and a set", "new Map([['k', 1], ['l', new Set(['s'])]])", "", "", `Map(2) {"k" => 1,"l" => Set(1) {"s"}}`},
		{"values that JSON loses", "({n: 12345678901234567890n, x: NaN, l: [undefined, 2n], " +
			"e: new Error('E'), r: /a/g, f() {}, u: undefined})", "", "",
			`{"n":12345678901234567890,"x":NaN,"l":[undefined,2],"e":[Error: E],"r":/a/g}`},
		{"bytes and dates", "[new Uint8Array([1, 2]), new ArrayBuffer(3), new Date(0)]", "", "",
			`[Uint8Array(2) [1,2],[ArrayBuffer of 3 bytes],"1970-01-01T00:00:00.000Z"]`},
		{"a rejection that is handled", "const p = Promise.reject(1); await null; try { await p } catch { 'ok' }", "", "", `"ok"`},
		{"the console", "console.dir({a: 1}); console.assert(1, 'no'); console.assert(0, 'A'); console.group('g'); " +
			"console.log('a\\nb'); console.groupEnd(); console.count(); " +
			"console.count(); console.timeEnd('t'); console.time(); console.trace('T')",
			"{\"a\":1}\ng\n  a\n  b\ndefault: 1\ndefault: 2\nt: no such timer\n", "Assertion failed: A\nTrace: T\n", ""},
		{"a table", "console.table([{a: 'x|y', b: 1}, {b: {c: 2}}, 3])",
			"|  | a | b | Value |\n| --- | --- | --- | --- |\n| 0 | x\\|y | 1 |  |\n| 1 |  | {\"c\":2} |  |\n| 2 |  |  | 3 |\n", "", ""},
		{"timers", "setTimeout(() => print('late'), 300); setTimeout(() => print('soon'), 1); 'first'", "soon\nlate\n", "", `"first"`},
		{"an interval that ends", "let n = 0; const id = setInterval(() => { print(++n); if (n === 3) clearInterval(id) }, 1)", "1\n2\n3\n", "", ""},
		{"a value that only its own code can break", "({toJSON() { throw 1 }, toString() { throw 2 }})", "", "", ""},
	} {
		o := run(t, m, sandbox.Request{Language: sandbox.JavaScript, Code: c.code})
		if o.Stdout != c.stdout || o.Stderr != c.stderr || o.Result != c.result || o.Exit != 0 || o.Ended != "" {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
	for _, c := range []struct{ name, code, stderr string }{
		{"an exception", "throw new TypeError('bad')", "TypeError: bad"},
		{"a syntax error", "let let", "SyntaxError"},
		{"a rejected promise", "await Promise.reject(new Error('later'))", "Error: later"},
		{"a rejected main", "async function main() { await null; throw new Error('BOOM') }\nmain()", "Error: BOOM"},
		{"a rejection that nothing handles", "(async () => { await null; throw new Error('LOST') })(); console.log('x')", "Error: LOST"},
		{"a rejection in a timer", "setTimeout(async () => { throw new Error('ASYNC') }, 1)", "Error: ASYNC"},
		{"a thrown object", "throw { code: 'C-1' }", `{"code":"C-1"}`},
		{"a thrown object in a timer", "setTimeout(() => { throw { code: 'C-2' } }, 1)", `{"code":"C-2"}`},
		{"an error with its cause", "throw new Error('outer', { cause: new TypeError('inner') })", "cause: TypeError: inner"},
		{"several errors", "await Promise.any([Promise.reject(new Error('one'))])", "error: Error: one"},
		{"a promise that nothing settles", "await new Promise(() => {})", "nothing settles"},
		{"an exception in a timer", "setTimeout(() => { throw new Error('in a timer') }, 1)", "in a timer"},
		{"an unknown name", "std.open('/etc/passwd')", "'std' is not defined"},
	} {
		o := run(t, m, sandbox.Request{Language: sandbox.JavaScript, Code: c.code})
		if o.Exit != 1 || !strings.Contains(o.Stderr, c.stderr) || o.Ended != "" {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// Of much output the begin and the end are kept.
func TestMuchOutput(t *testing.T) {
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}})
	o := run(t, m, js("acme", "s", "print('FIRST'); for (let i = 0; i < 200; i++) print('x'.repeat(9999)); print('LAST')"))
	want := fmt.Sprintf("\n[%d bytes were dropped here]\n", o.StdoutDropped)
	if !strings.HasPrefix(o.Stdout, "FIRST\n") || !strings.HasSuffix(o.Stdout, "LAST\n") || !strings.Contains(o.Stdout, want) ||
		len(o.Stdout)-len(want)+int(o.StdoutDropped) != len("FIRST\nLAST\n")+2_000_000 {
		t.Errorf("%d bytes, %d dropped", len(o.Stdout), o.StdoutDropped)
	}
}

// What a session took cannot be given back: the variables that have it stay. So it ends, and the next call begins anew.
func TestJavaScriptOutOfMemory(t *testing.T) {
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}})
	for name, code := range map[string]string{
		"an error": "const a = []; for (;;) a.push(new Array(100000).fill(1.5))",
		"caught":   "const a = []; try { for (;;) a.push(new Array(100000).fill(1.5)) } catch {} for (;;) a.push(1)",
	} {
		run(t, m, js("acme", name, "globalThis.kept = 1"))
		if got := run(t, m, js("acme", name, code)); !strings.Contains(got.Ended, "memory limit of 64 MiB") {
			t.Errorf("%s: %+v", name, got)
		} else if next := run(t, m, js("acme", name, "typeof kept")); next.Exit != 0 || next.Result != `"undefined"` || !next.StateLost {
			t.Errorf("%s: then %+v", name, next)
		}
	}
}

// take is code of JavaScript that prints FOUND unless all paths are refused, to read and to write.
func take(paths string) string {
	return "const found = [];\nfor (const p of [" + paths + `]) {
		for (const use of [() => readFile(p), () => readFile(p, "bytes"), () => writeFile(p, "broken")]) {
			try { found.push(p, use()); } catch (e) { if (!(e instanceof Error)) throw e; }
		}
	}
	if (found.length) print('FOUND', ...found);
	throw new Error('nothing');`
}

// attacks on JavaScript. In the interpreter there is nothing of the host but the files of the session: what it lacks is listed.
func javaScriptAttacks() []attack {
	return []attack{
		{name: "/etc/passwd", code: take("'/etc/passwd', '//etc/passwd', '/work//etc/passwd', '/work/../etc/passwd', '../'.repeat(30) + 'etc/passwd', 'a/../../../../../../../../etc/passwd'"), fails: true},
		{name: "environment variables of the gateway", code: take("'/proc/self/environ', '/proc/PID/environ', '/proc/1/environ', '/proc/self/cwd/secret.txt', '/dev/fd/0', '/proc/self/fd/0', '/dev/stdin', '/proc/self/mem'"), fails: true},
		{name: "the gateway's data", code: take("'DATA/turnpike.db', '../../../../turnpike.db', '../../../turnpike.db', '/work/../../../../turnpike.db', '..\\\\..\\\\turnpike.db\\0'"), fails: true},
		{name: "a second session's files", code: take("'../secret.txt', '../../*/secret.txt', 'DATA/sandbox/sessions', '..', '../..', '.', '/', '/work', '/work/', ''"), fails: true},
		{name: "names of other directories", fails: true, code: "if (listFiles().length || listFiles('..').length || listFiles('DATA').length) print('FOUND'); throw 1"},
		{name: "writing outside", fails: true, code: take("'/tmp/written', '../written', 'DATA/written', '/dev/null', '/dev/shm/written'")},
		{name: "file of 300 MB", slow: true, fails: true, code: "writeFile('big', 'x'.repeat(300e6)); print('FOUND')"},
		{name: "endless writes", slow: true, fails: true, code: "const data = new Uint8Array(16 << 20); for (let i = 0; ; i++) writeFile('f' + i, data)"},
		{name: "20,000 files", slow: true, fails: true, code: "for (let i = 0; i < 20000; i++) writeFile('d' + i % 7 + '/f' + i, ''); print('FOUND')"},
		{name: "deep directories", slow: true, fails: true, code: "for (let i = 0; ; i++) writeFile('d' + i + '/x'.repeat(490), '')"},
		{name: "names without end", code: "for (const n of [2000, 1e6, 2e7]) { try { writeFile('x'.repeat(n), ''); print('FOUND') } catch {} } throw 1", fails: true},
		{name: "sizes of the prelude", fails: true, code: `
			// The prelude asks for sizes: broken ones must change nothing outside, and end nothing.
			const u = new Uint8Array(10); Math.min = () => 1e18; Object.prototype.error = 'x'; Array.prototype[Symbol.iterator] = null;
			Object.defineProperty(u, 'byteLength', { get: () => 1e15 }); Object.defineProperty(u, 'byteOffset', { get: () => -5 });
			writeFile('f', u); if (readFile('f', 'bytes').length !== 10) print('FOUND'); throw 1`},
		{name: "3 GB allocation", code: "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))", ends: "memory limit"},
		{name: "3 GB text", code: "let s = 'x'; for (;;) s += s", fails: true},
		{name: "endless loop", code: "for (;;);", ends: "time limit"},
		{name: "endless promises", code: "(function f() { Promise.resolve().then(f) })(); await new Promise(() => {})", fails: true},
		{name: "endless timers", code: "setInterval(() => {}, 0)", ends: "time limit"},
		{name: "hostile regular expression", code: "/^(a+)+$/.test('a'.repeat(40) + '!')", ends: "time limit"},
		{name: "endless output", code: "for (;;) console.log('x'.repeat(10000))", ends: "time limit", drops: true},
		{name: "endless recursion", code: "function f() { return f() + 1 } f()", fails: true},
		{name: "recursion in JSON", code: "let a = []; for (let i = 0; i < 1e6; i++) a = [a]; JSON.stringify(a)", fails: true},
		{name: "recursion in a regular expression", code: "new RegExp('('.repeat(1e6) + ')'.repeat(1e6))", fails: true},
		{name: "modules", code: "await import('os')", fails: true},
		{name: "modules by path", code: "await import('DATA/module.js')", fails: true},
		{name: "names of the host", fails: true, code: `
			const found = ['std', 'os', 'require', 'process', 'fetch', 'XMLHttpRequest', 'WebSocket', 'Worker', 'Deno', 'Bun', '__write', '__files', 'scriptArgs', 'loadScript', 'bjson']
				.filter((n) => n in globalThis);
			if (found.length) print('FOUND', found); else throw new Error('nothing')`},
		{name: "the prelude", fails: true, code: `
			const e = new Error('x'); let f = (function () { return arguments.callee.caller })(); if (f) print('FOUND', f); throw e`},
		{name: "a forged reply", code: `console.error('\u0000{"exit":0,"result":"FORGED"}'); throw 1`, fails: true},
		{name: "broken prototypes", code: `Array.prototype.map = String.prototype.trimEnd = JSON.stringify = Promise.prototype.then = () => { throw 1 }; ({})`},
		{name: "2 MiB of code values", code: "const big = 'x'.repeat(2 << 20); big"},
	}
}

func TestAttacksOnQuickJS(t *testing.T) {
	attackAll(t, sandbox.QuickJS, sandbox.JavaScript, time.Second, javaScriptAttacks())
}
