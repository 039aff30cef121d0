package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

const copyMasterKey = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="

// unpackRelease unpacks what a killed gateway left behind, and returns its data directory.
func unpackRelease(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	packed, err := os.Open(filepath.Join("..", "crash", "testdata", "releases", "baseline.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return filepath.Join(dir, "data")
		}
		var text []byte
		if err == nil {
			text, err = io.ReadAll(archive)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.FromSlash(h.Name)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestAReleaseMovesToPostgreSQLAndBack(t *testing.T) {
	noLeaks(t)
	o := postgrestest.New(t)
	from, to := unpackRelease(t), filepath.Join(t.TempDir(), "data")
	file := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(file, []byte("database: env:DB\nmaster_key: env:MK\npostgres: {schema: "+o.Schema+"}\n"+
		"providers: [{name: demo, kind: demo, models: [demo]}]\n"+
		"orgs: [{id: new, runtime: {buckets: [{name: local}, {name: inside, kind: database}, "+
		"{name: far, kind: s3, bucket: bucket, access_key: env:AK, secret_key: env:SK}]}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"DB": o.URL, "MK": copyMasterKey, "AK": "a", "SK": "s"}
	store := func(args ...string) (string, int) {
		var out strings.Builder
		status := Main(t.Context(), Process{Args: append([]string{"store", "copy", "--config", file}, args...), Stdout: &out, Stderr: &out,
			Env: func(name string) (string, bool) {
				v, ok := env[name]
				return v, ok
			}})
		return out.String(), status
	}
	const s3 = "not copied: files of the bucket far of the org new: they stay in S3"
	for _, c := range []struct{ from, to, local, inside string }{
		{from, "env:DB", "set the kind of the bucket local of the org new to database: ", ""},
		{
			o.URL, to, "not copied: files of the bucket local of the org new: they are in blobs of the data directory ",
			"set the kind of the bucket inside of the org new to disk: ",
		},
	} {
		said, status := store("--from", c.from, "--to", c.to)
		for _, want := range []string{
			"not copied: tool_cache: ", "copied and compared: ", "chains of the audit", "the copy is complete", s3, c.local, c.inside,
		} {
			if status != 0 || !strings.Contains(said, want) {
				t.Errorf("exit status %d, %q is missing in\n%s", status, want, said)
			}
		}
	}
	for _, name := range []string{app.AuditKeyFile, app.URLKeyFile, app.RunKeyFile} {
		was, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		is, err := os.ReadFile(filepath.Join(to, name))
		if err != nil || strings.TrimSpace(string(is)) != strings.TrimSpace(string(was)) {
			t.Errorf("%s is not what it was: %v", name, err)
		}
	}
	var out strings.Builder
	verified := Main(t.Context(), Process{Args: []string{"audit", "verify", "--data", to}, Stdout: &out, Stderr: &out,
		Env: func(string) (string, bool) { return "", false }})
	if verified != 0 && verified != 3 { // 3 = the gateway was killed before it had signed all
		t.Errorf("exit status %d: %s", verified, out.String())
	}
	if said, status := store("--from", from, "--to", o.URL); status != 1 || !strings.Contains(said, "is not empty") {
		t.Errorf("a target that has rows: exit status %d: %s", status, said)
	}
}

func TestACopyNeedsASideOfEachKind(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--from a", "name the source with --from and the target with --to"},
		{"--from a --to b", "turnpike backup and pg_dump make others"},
		{"--from a --to postgres://h", "names no user"},
		{"--from a --to env:NONE", "NONE"},
	} {
		var out strings.Builder
		status := Main(t.Context(), Process{Args: append([]string{"store", "copy"}, strings.Fields(c.args)...), Stdout: &out, Stderr: &out,
			Env: func(name string) (string, bool) {
				if name == "TURNPIKE_MASTER_KEY" {
					return copyMasterKey, true
				}
				return "", false
			}})
		if status != 1 || !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: exit status %d: %s", c.args, status, out.String())
		}
	}
	var out strings.Builder
	status := Main(t.Context(), Process{Args: []string{"store", "copy", "--from", "a", "--to", "b"}, Stdout: &out, Stderr: &out,
		Env: func(string) (string, bool) { return "", false }})
	if status != 1 || !strings.Contains(out.String(), "master_key is missing") {
		t.Errorf("exit status %d: %s", status, out.String())
	}
}

// What the gateway encrypted with its own key can only be moved with that key. // K06
func TestAMoveNeedsTheMasterKeyOfTheDataDirectory(t *testing.T) {
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, app.MasterKeyFile), []byte(copyMasterKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		master, previous, want string
	}{
		{copyMasterKey, "", ""},
		{otherCopyKey, copyMasterKey, ""},
		{otherCopyKey, "", "set it to the content of that file"},
	} {
		s := storeCopy{keys: &config.Secrets{Master: secret.NewValue(c.master), Previous: secret.NewValue(c.previous)}}
		got := ""
		if err := s.checkMasterKey(from); err != nil {
			got = err.Error()
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

const otherCopyKey = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
