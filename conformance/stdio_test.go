package conformance

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// child is the command of a stdio server in the configuration file: node with
// args, of which those in the form ./path or --flag=./path become absolute.
func (s *site) child(t *testing.T, args ...string) []string {
	t.Helper()
	command := []string{s.node}
	for _, arg := range args {
		if flag, path, found := strings.Cut(arg, "./"); found && (flag == "" || strings.HasSuffix(flag, "=")) {
			arg = flag + absolute(t, path)
		}
		command = append(command, arg)
	}
	return command
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	whole, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole
}

const (
	filesystemServer = "./node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
	everythingServer = "./node_modules/@modelcontextprotocol/server-everything/dist/index.js"
)

// fileQuestion ends in a directory.
const fileQuestion = "What does the file say in "

// fileScript lists the directory that it is asked about, reads the file that it
// finds there, and says what is in it.
func fileScript(ask chatRequest) turn {
	results := ask.results()
	dir := strings.TrimPrefix(string(ask.Messages[0].Content), fileQuestion)
	switch len(results) {
	case 0:
		return turn{Calls: []seenCall{{ID: "call_list", Name: "list_directory", Arguments: string(marshal(object{"path": dir}))}}}
	case 1:
		_, name, found := strings.Cut(results[0], "[FILE] ")
		if !found {
			return turn{Text: "I cannot tell: " + results[0]}
		}
		path := filepath.Join(dir, strings.TrimSpace(name))
		return turn{Calls: []seenCall{{ID: "call_read", Name: "read_text_file", Arguments: string(marshal(object{"path": path}))}}}
	default:
		return turn{Text: "It says: " + results[1]}
	}
}

// testFilesystem lets the model read a file through the official filesystem
// server, which the gateway starts itself.
func testFilesystem(t *testing.T, s *site) { // D16
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const text = "Grüße aus Łódź – 東京 🏁\nsecond line\n"
	if err := os.WriteFile(filepath.Join(dir, "note for you.txt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.newRigWith(t, fileScript, func(*rig) []object {
		return []object{{"name": "files", "command": s.child(t, filesystemServer, dir)}}
	})
	eachWay(t, r.clients, func(t *testing.T, c client, stream bool) {
		got := answer(t, c, r.ask("gpt-test", fileQuestion+dir, stream))
		wantEqual(t, "answer", "It says: "+text, finalText(got.Text, stream))
		wantEqual(t, "rounds at the upstream", 3, len(r.upstream.take()))
	})
	t.Run("a file outside is an error for the model", func(t *testing.T) {
		got := answer(t, r.clients[1], r.ask("gpt-test", fileQuestion+absolute(t, "clients"), false))
		if !strings.HasPrefix(got.Text, "I cannot tell: ") || !strings.Contains(got.Text, "Access denied") {
			t.Errorf("answer = %q, want one that quotes the server's error", got.Text)
		}
	})
	t.Run("mcp check", func(t *testing.T) {
		wantLines(t, r.program.must(t, "mcp", "check", "files", "--org", "default"), `^files is up: \S+ .* over stdio`, `^  offered   read_text_file  \S`)
	})
}

// slowScript calls the long operation when it is asked for that, and else echo.
func slowScript(ask chatRequest) turn {
	results := ask.results()
	switch {
	case len(results) > 0:
		return turn{Text: "The tool said: " + results[0]}
	case strings.Contains(string(ask.Messages[0].Content), "slow"):
		return turn{Calls: []seenCall{{ID: "call_slow", Name: "trigger-long-running-operation", Arguments: `{"duration":60,"steps":1}`}}}
	default:
		return turn{Calls: []seenCall{{ID: "call_echo", Name: "echo", Arguments: `{"message":"back again"}`}}}
	}
}

// witness hears of each tools/call from the process that got it.
type witness struct {
	*httptest.Server
	calls chan int // process ids
}

func startWitness(t *testing.T) witness {
	w := witness{calls: make(chan int, 1)}
	w.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if pid, wrong := strconv.Atoi(string(body)); err == nil && wrong == nil {
			w.calls <- pid
		}
	}))
	t.Cleanup(w.Close)
	return w
}

// testKilledChild kills the process of a stdio server in mid-call.
func testKilledChild(t *testing.T, s *site) { // D16
	w := startWitness(t)
	r := s.newRigWith(t, slowScript, func(*rig) []object {
		command := s.child(t, "--import=./servers/witness.mjs", everythingServer, "stdio")
		return []object{{"name": "everything", "command": command, "env": object{"WITNESS": w.URL}}}
	})
	var latest int
	for _, c := range r.clients {
		t.Run(c.name(), func(t *testing.T) {
			killed := r.killInMidCall(t, c, w)
			next := answer(t, c, r.ask("gpt-test", "And now?", false))
			wantEqual(t, "answer of the next run", "The tool said: Echo: back again", next.Text)
			if latest = await(t, "the call at the new process", w.calls); latest == killed {
				t.Errorf("process %d lives on", killed)
			}
		})
	}
	t.Run("the gateway leaves no process behind", func(t *testing.T) {
		r.program.serving.stop()
		if err := signal(latest, syscall.Signal(0)); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("process %d after the gateway's end: %v, want %v", latest, err, os.ErrProcessDone)
		}
	})
}

// killInMidCall returns the id of the process that it killed while it carried
// out a call, which is an error that the model sees.
func (r *rig) killInMidCall(t *testing.T, c client, w witness) int {
	t.Helper()
	e := c.start(t, r.ask("gpt-test", "Do the slow thing.", false))
	killed := await(t, "the call at the process", w.calls)
	if err := signal(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	got := e.wait(t)
	if got.Error != nil {
		t.Fatalf("the client saw %+v, want an answer", *got.Error)
	}
	wantEqual(t, "finish reasons", []string{"stop"}, got.FinishReasons)
	for _, words := range []string{"The tool said: ", "trigger-long-running-operation", "ended (signal: killed)"} {
		if !strings.Contains(got.Text, words) {
			t.Errorf("answer = %q, want a tool error with %q", got.Text, words)
		}
	}
	return killed
}

// signal sends a signal to the process pid, which is no child of the test.
func signal(pid int, sig os.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(sig)
}
