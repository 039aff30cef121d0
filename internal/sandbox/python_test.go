package sandbox_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// pythons are the drivers that run Python here.
func pythons() []string { return []string{sandbox.Wasm, sandbox.Bwrap, sandbox.Landlock} }

func python(code string) sandbox.Request {
	return sandbox.Request{Org: "acme", Session: "s", Language: sandbox.Python, Code: code}
}

// P62, on drivers with and without Python of the host.
func TestPython(t *testing.T) {
	for _, driver := range pythons() {
		t.Run(driver, func(t *testing.T) {
			m := newManager(t, options(t, driver))
			for _, c := range []struct{ name, code, stdout, stderr, result string }{
				{"P62", "print(sum(range(10)))", "45\n", "", ""},
				{"an expression", "1+2", "", "", "3"},
				{"nothing", "", "", "", ""},
				{"a text", "'a' + 'ü'", "", "", "'aü'"},
				{"output", "import sys\nprint('a', 1); print('no', file=sys.stderr); sys.stdout.write('ü')", "a 1\nü", "no\n", "1"},
				{"a declaration has no value", "kept = 41", "", "", ""},
				{"variables survive", "kept + 1", "", "", "42"},
				{"functions and modules survive", "import math\ndef f(x):\n  return math.floor(x) + kept", "", "", ""},
				{"they are used", "f(1.5)", "", "", "42"},
				{"files", "open('f.txt', 'w').write('hello'); open('f.txt').read()", "", "", "'hello'"},
				{"a module in the working directory", "open('own.py', 'w').write('v = 7'); open('csv.py', 'w').write('1/0')\nimport own, csv\nown.v", "", "", "7"},
				{"temporary files", "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')", "", "", ""},
				{"the input is empty", "import sys\nsys.stdin.read()", "", "", "''"},
				{"sleeping", "import time\ntime.sleep(0.01)", "", "", ""},
				{"standard library", "import json, re, csv, sqlite3, decimal, datetime, statistics, hashlib, random, collections, itertools\njson.dumps([1])", "", "", "'[1]'"},
				{"exit without an error", "import sys\nsys.exit()", "", "", ""},
				{"a half of a character", `print('\ud800')`, "\\ud800\n", "", ""},
			} {
				o := run(t, m, python(c.code))
				if o.Stdout != c.stdout || o.Stderr != c.stderr || o.Result != c.result || o.Exit != 0 || o.Ended != "" || o.StateLost {
					t.Errorf("%s: %+v", c.name, o)
				}
			}
			for _, c := range []struct {
				name, code, stderr string
				exit               int
			}{
				{"an exception", "def f():\n  1/0\nf()", "line 2, in f\n    1/0\n", 1},
				{"a syntax error", "let let", "SyntaxError", 1},
				{"an exit status", "import sys\nsys.exit(7)", "", 7},
				{"an exit text", "import sys\nsys.exit('no')", "no\n", 1},
				{"an unknown module", "import nothing", "No module named 'nothing'", 1},
			} {
				o := run(t, m, python(c.code))
				if o.Exit != c.exit || !strings.Contains(o.Stderr, c.stderr) || strings.Contains(o.Stderr, "<string>") || o.Ended != "" {
					t.Errorf("%s: %+v", c.name, o)
				}
			}
		})
	}
}

// A long value is cut, whatever its characters take in the reply, and the session goes on.
func TestLongValuesOfPython(t *testing.T) {
	for _, driver := range pythons() {
		t.Run(driver, func(t *testing.T) {
			m := newManager(t, options(t, driver))
			for _, value := range []string{"'a' * 70000", "'é' * 70000", "'😀' * 70000", `'"\\' * 70000`, "type('C', (), {'__repr__': lambda self: chr(1) * 70000})()", "type('C', (), {'__repr__': lambda self: chr(0xd800) * 70000})()"} {
				o := run(t, m, python(value))
				if o.Ended != "" || o.Exit != 0 || len(o.Result) < sandbox.MaxResult-4 || len(o.Result) > sandbox.MaxResult+3 || !strings.HasSuffix(o.Result, "…") || !utf8.ValidString(o.Result) {
					t.Errorf("%s: %d bytes, %.200v", value, len(o.Result), o)
				}
			}
		})
	}
}

// Files outlive the variables.
func TestFilesStayWhenTheStateIsLost(t *testing.T) {
	for _, driver := range pythons() {
		t.Run(driver, func(t *testing.T) {
			o := options(t, driver)
			m := newManager(t, o)
			run(t, m, python("open('f', 'w').write('kept'); x = 1"))
			m.Close()
			again := newManager(t, o)
			if got := run(t, again, python("open('f').read()")); got.Result != "'kept'" || !got.StateLost {
				t.Errorf("%+v", got)
			}
			if got := run(t, again, python("x")); got.Exit != 1 || got.StateLost {
				t.Errorf("%+v", got)
			}
		})
	}
}

// try is code that prints FOUND unless the expression raises an error.
func try(imports, expression string) string {
	return "import " + imports + "\nx = " + expression + "\nprint('FOUND', x)"
}

func pythonAttacks(driver string) []attack {
	list := []attack{
		{name: "fork bomb", slow: true, code: "import os\npids = []\ntry:\n  while True:\n    p = os.fork()\n    if p == 0:\n      import time\n      time.sleep(60)\n    pids.append(p)\nfinally:\n  print(len(pids) if len(pids) < 64 else 'FOUND')", fails: true},
		{name: "fork bomb that grows", code: "import os\nwhile True:\n  try: os.fork()\n  except Exception as e: last = e\n  if not hasattr(os, 'fork'): break", fails: driver != sandbox.Wasm && driver != sandbox.Landlock},
		{name: "thread bomb", slow: true, code: "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", fails: true},
		{name: "3 GB allocation", code: "x = bytearray(3 << 30)\nprint('FOUND', len(x))", fails: true},
		{name: "3 GB in pieces", slow: true, code: "x = []\nwhile len(x) < 3000: x.append(bytearray(1 << 20))\nprint('FOUND')", fails: true},
		{name: "endless loop", code: "while True: pass", ends: "time limit"},
		{name: "hostile regular expression", code: "import re\nre.match(r'(a+)+$', 'a' * 60 + '!')", ends: "time limit"},
		{name: "endless output", code: "while True: print('x' * 10000)", ends: "time limit", drops: true},
		{name: "endless recursion", code: "def f(): return f()\nf()", fails: true},
		{name: "endless recursion without a limit", code: "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return [f(y) for y in [x]]\nf(1)", fails: true},
		{name: "a number with 10 million digits", code: "x = 10 ** (10 ** 8)"},
		{name: "file of 300 MB", slow: true, fresh: true, code: "f = open('big', 'wb')\nfor _ in range(300): f.write(b'x' * (1 << 20)); f.flush()\nprint('FOUND')", fails: true},
		{name: "many files", slow: true, fresh: true, code: "for i in range(3):\n  f = open('big%d' % i, 'wb')\n  for _ in range(250): f.write(b'x' * (1 << 20)); f.flush()\n  f.close()\nimport time\ntime.sleep(60)\nprint('FOUND')", fails: true},
		{name: "20,000 files", slow: true, fresh: true, code: "for i in range(20000): open('f%d' % i, 'w').close()\nimport time\ntime.sleep(60)\nprint('FOUND')", fails: true},
		{name: "socket", code: try("socket", "socket.create_connection(('127.0.0.1', PORT), 2)"), fails: true},
		{name: "datagram", code: try("socket", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))"), fails: true},
		{name: "DNS", code: try("socket", "socket.getaddrinfo('example.com', 80)"), fails: true},
		{name: "HTTP", code: try("urllib.request", "urllib.request.urlopen('http://127.0.0.1:PORT/', timeout=2).read()"), fails: true},
		{name: "/etc/passwd", code: try("os", "open('/etc/passwd').read()"), fails: true},
		{name: "/etc/shadow", code: try("os", "open('/etc/shadow').read()"), fails: true},
		{name: "settings of the host", fails: true,
			code: "import os\ntry: found = os.listdir('/usr/local/etc')\nexcept OSError: found = []\n" +
				"if found: print('FOUND', found)\nraise SystemExit(1)"},
		{name: "/root", code: try("os", "os.listdir('/root')"), fails: true},
		{name: "/proc of the gateway", code: try("os", "open('/proc/PID/environ').read()"), fails: true},
		{name: "/proc of all", fails: true, code: "import os, glob\nfor p in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n  try: print(open(p).read())\n  except OSError: pass\nraise SystemExit(1)"},
		{name: "/sys", code: try("os", "open('/sys/kernel/notes', 'rb').read()"), fails: true},
		{name: "the gateway's data", code: try("os", "open('DATA/turnpike.db').read()"), fails: true},
		{name: "the gateway's directory", code: try("os", "os.listdir('DATA')"), fails: true},
		{name: "a second session's files", code: "import os, glob\nfound = [open(p).read() for p in glob.glob('DATA/sandbox/sessions/*/*/secret.txt')]\nfor up in ('../*/secret.txt', '../../*/*/secret.txt', '/work/../*/secret.txt', '/work/*/secret.txt'): found += glob.glob(up)\nif found: print('FOUND', found)\nraise SystemExit(1)", fails: true},
		{name: "path escape", code: try("os", "open('../../../../turnpike.db').read()"), fails: true},
		{name: "path escape from the mount", code: try("os", "open('/work/../../../../DATA/turnpike.db').read()"), fails: true},
		{name: "path escape by link", fresh: true, code: "import os\nos.symlink('DATA', 'l')\nopen('l/turnpike.db').read()", fails: true},
		{name: "path escape by hard link", fresh: true, code: "import os\nos.link('/etc/passwd', 'l')\nprint('FOUND', open('l').read())", fails: true},
		{name: "path escape by a moved directory", fresh: true, code: "import os\nos.makedirs('a/b')\nos.chdir('a/b')\nos.rename('/work/a/b', '/work/c')\ntry:\n  if 'turnpike.db' in os.listdir('../../..'): print('FOUND')\nexcept OSError: pass\nopen('../../../DATA/turnpike.db').read()", fails: true},
		{name: "writing outside", code: try("os", "open('/usr/written', 'w')"), fails: true},
		{name: "writing into the root", code: try("os", "open('/written', 'w')"), fails: true},
		{name: "kill of the gateway", code: try("os", "os.kill(PID, 9)"), fails: true},
		{name: "kill of all", code: "import os\nos.kill(-1, 9)\nraise SystemExit(1)", fails: true},
		{name: "ptrace", code: try("ctypes", "(lambda r: r if r == 0 else 1/0)(ctypes.CDLL(None).ptrace(16, PID, 0, 0))"), fails: true},
		{name: "environment variables of the gateway", code: "import os\nprint(dict(os.environ))\nraise SystemExit(1)", fails: true},
		{name: "root", fails: true, code: "import os\ntry:\n  os.setuid(0); print('FOUND')\nexcept (OSError, AttributeError): pass\nif hasattr(os, 'getuid') and os.getuid() == 0: print('FOUND')\nraise SystemExit(1)"},
		{name: "raising limits", code: try("resource", "resource.setrlimit(resource.RLIMIT_NPROC, (10000, 10000)) or resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, 1 << 40))"), fails: true},
		{name: "namespaces", code: try("ctypes", "(lambda r: r if r == 0 else 1/0)(ctypes.CDLL(None).unshare(0x10000000))"), fails: true},
		{name: "keyring", code: try("ctypes", "(lambda r: r if r >= 0 else 1/0)(ctypes.CDLL(None).syscall(250, 0, -3, 1))"), fails: true},
		{name: "memory without a file", code: try("os", "os.memfd_create('x')"), fails: true},
		{name: "a forged reply", code: `import os` + "\n" + `os.write(2, b'\x00{"exit":0,"result":"FORGED"}\n')` + "\nraise SystemExit(1)", fails: true},
		{name: "closing the output", code: "import os\nos.close(1); os.close(2)", fails: true},
		{name: "the end of the interpreter", code: "import os\nos._exit(0)", ends: "interpreter ended"},
		{name: "a program that stays", fails: driver != sandbox.Bwrap, code: "import subprocess\nsubprocess.Popen(['/bin/sh', '-c', 'while true; do :; done'], start_new_session=True)\nNone"},
	}
	return list
}

func TestAttacksOnPython(t *testing.T) {
	for _, driver := range pythons() {
		t.Run(driver, func(t *testing.T) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			attacks := pythonAttacks(driver)
			for i := range attacks {
				attacks[i].code = strings.ReplaceAll(attacks[i].code, "PORT", fmt.Sprint(listener.Addr().(*net.TCPAddr).Port))
			}
			attackAll(t, driver, sandbox.Python, time.Second, attacks)
		})
	}
}
