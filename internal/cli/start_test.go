package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
)

// A gateway whose address is taken creates and changes nothing. // A06
func TestAGatewayWhoseAddressIsTakenTouchesNoStore(t *testing.T) {
	noLeaks(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, setting := range map[string]string{"listen": "TURNPIKE_LISTEN", "telemetry.metrics_listen": "TURNPIKE_METRICS_LISTEN"} {
		dir := t.TempDir()
		file := filepath.Join(dir, "t.yaml")
		if err := os.WriteFile(file, []byte(minimalFile), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		env := func(name string) (string, bool) { return taken.Addr().String(), name == setting }
		status := Main(t.Context(), Process{Args: []string{"serve", "-c", file}, Env: env, Stdout: &out, Stderr: &errs})
		if status != 1 || !strings.Contains(errs.String(), "turnpike: "+name+": "+taken.Addr().String()+": address already in use. Stop the process that uses it, or set "+name+" to another address\n") {
			t.Errorf("%s: %d: %s", name, status, errs.String())
		}
		if _, err := os.Stat(filepath.Join(dir, "turnpike-data")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the data directory was made: %v", name, err)
		}
	}
}

// Relative paths of the file are relative to the file. A store that release 0.1 has
// left in the working directory is not passed over: the gateway refuses to start
// with an empty one, and every command that reads it says why it finds none.
func TestAStoreInTheWorkingDirectoryIsNotPassedOver(t *testing.T) {
	noLeaks(t)
	work := t.TempDir()
	t.Chdir(work)
	for name, tt := range map[string]struct{ yaml, key, was, is, set string }{
		"the default":  {"", "data", "turnpike-data/turnpike.db", "conf/turnpike-data/turnpike.db", "turnpike-data"},
		"a directory":  {"data: kept\n", "data", "kept/turnpike.db", "conf/kept/turnpike.db", "kept"},
		"checkpoints":  {"data: /nowhere\naudit: {checkpoints: far/points}\n", "audit.checkpoints", "far/points", "conf/far/points", "far/points"},
		"one above it": {"data: ../kept\n", "data", "../kept/turnpike.db", "kept/turnpike.db", "../kept"},
	} {
		t.Run(name, func(t *testing.T) {
			here := filepath.Join(work, strings.ReplaceAll(name, " ", ""), "cwd")
			if err := os.MkdirAll(filepath.Join(here, "conf"), 0o700); err != nil {
				t.Fatal(err)
			}
			t.Chdir(here)
			if err := os.WriteFile("conf/t.yaml", []byte(tt.yaml+minimalFile), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Dir(tt.was), 0o700); err != nil {
				t.Fatal(err)
			}
			store, err := sqlite.Open(t.Context(), sqlite.Options{Path: tt.was})
			if err != nil {
				t.Fatal(err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf("turnpike: %s exists and %s does not: relative paths in conf/t.yaml are relative to the file now, not to the working directory. Move %s to %s, or set %s to %s\n",
				tt.was, tt.is, tt.set, filepath.Join("conf", tt.set), tt.key, filepath.Join(here, tt.set))
			commands := []string{"serve -c conf/t.yaml"}
			if tt.key == "data" {
				commands = append(commands, "runs list -c conf/t.yaml", "audit list -c conf/t.yaml", "audit key -c conf/t.yaml", "backup x.tar -c conf/t.yaml", "mcp list -c conf/t.yaml")
			}
			for _, line := range commands {
				status, out, errs := runMain(t, strings.Fields(line)...)
				if status != 1 || strings.Replace(errs, "backup: ", "", 1) != want || out != "" {
					t.Errorf("%s: %d:\n%s%s, want\n%s", line, status, out, errs, want)
				}
			}
			if _, err := os.Stat(tt.is); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s was made: %v", tt.is, err)
			}
		})
	}
}

// With a store at both places, or at the old one only when a flag or a variable
// names it, nothing is refused.
func TestAStoreThatIsNamedIsUsed(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("conf", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("conf/t.yaml", []byte(minimalFile), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(path string) {
		store, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	create("turnpike-data/turnpike.db")
	list := func(env map[string]string, args ...string) (int, string) {
		var errs bytes.Buffer
		return Main(t.Context(), Process{
			Args: append([]string{"runs", "list", "--org", "o", "-c", "conf/t.yaml"}, args...),
			Env:  func(name string) (string, bool) { v, ok := env[name]; return v, ok }, Stdout: new(bytes.Buffer), Stderr: &errs,
		}), errs.String()
	}
	if status, errs := list(nil, "--data", "turnpike-data"); status != 0 {
		t.Error(errs)
	}
	if status, errs := list(map[string]string{"TURNPIKE_DATA": "turnpike-data"}); status != 0 {
		t.Error(errs)
	}
	if status, errs := list(nil, "--data", "none"); status != 1 || !strings.Contains(errs, "no Turnpike data found in none: name the data directory with --data") {
		t.Error(errs)
	}
	create("conf/turnpike-data/turnpike.db")
	if status, errs := list(nil); status != 0 {
		t.Error(errs)
	}
}

func TestTheStartSaysThatThereIsNoOrg(t *testing.T) {
	var out bytes.Buffer
	announce(&out, &config.Config{}, nil, "http://h")
	if !strings.HasSuffix(out.String(), "  orgs: none\n") {
		t.Errorf("%q", out.String())
	}
}

// A gateway that is asked to stop while it starts has not failed.
func TestAStartThatIsStoppedIsNoFailure(t *testing.T) {
	noLeaks(t)
	file := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(file, []byte(minimalFile), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out, errs bytes.Buffer
	env := func(string) (string, bool) { return "", false }
	if status := Main(ctx, Process{Args: []string{"serve", "-c", file}, Env: env, Stdout: &out, Stderr: &errs}); status != 0 || !strings.Contains(errs.String(), "msg=stopped") {
		t.Errorf("status %d: %s", status, errs.String())
	}
}
