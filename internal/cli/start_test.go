package cli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
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

// The store next to the file is used, or the one that a flag or a variable names.
func TestTheStoreIsNextToTheFileOrNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("conf", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("conf/t.yaml", []byte(minimalFile), 0o600); err != nil {
		t.Fatal(err)
	}
	create := func(path string) {
		store, err := database.Open(t.Context(), database.Options{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	create("turnpike-data/turnpike.db")
	command := func(env map[string]string, args ...string) (int, string) {
		var errs bytes.Buffer
		return Main(t.Context(), Process{
			Args: append(args, "-c", "conf/t.yaml"),
			Env:  func(name string) (string, bool) { v, ok := env[name]; return v, ok }, Stdout: new(bytes.Buffer), Stderr: &errs,
		}), errs.String()
	}
	list := func(env map[string]string, args ...string) (int, string) {
		return command(env, append([]string{"runs", "list", "--org", "o"}, args...)...)
	}
	for _, line := range []string{"runs list", "audit list", "audit key", "backup x.tar"} {
		status, errs := command(nil, strings.Fields(line)...)
		if status != 1 || !strings.Contains(errs, "no Turnpike data found in conf/turnpike-data: name the data directory with --data") {
			t.Errorf("%s: %d: %s", line, status, errs)
		}
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
