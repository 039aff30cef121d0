package cli

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
)

// Every command that opens the database refuses one of a build before the baseline with one sentence that names the file, and
// changes nothing. testdata/before_baseline.tar.gz is a backup that such a build made.
func TestADatabaseFromBeforeTheBaselineIsRefused(t *testing.T) {
	noLeaks(t)
	packed, err := os.Open(filepath.Join("testdata", "before_baseline.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	z, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			files[h.Name], err = io.ReadAll(archive)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	database := files[app.DatabaseFile]
	dir := t.TempDir()
	data, backup, file := filepath.Join(dir, "data"), filepath.Join(dir, "backup.tar"), filepath.Join(dir, "t.yaml")
	path := filepath.Join(data, app.DatabaseFile)
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		path: string(database), filepath.Join(data, app.AuditKeyFile): string(files[app.AuditKeyFile]), backup: string(text),
		file: "listen: 127.0.0.1:0\ndata: " + data + "\nproviders: [{name: demo, kind: demo, models: [demo]}]\n" +
			"mcp_servers: [{name: s, orgs: \"*\", url: \"http://127.0.0.1:9\"}]\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const sentence = ": a build before release 0.1 made the file (schema version 17), " +
		"and this version reads files from schema version 100 on: use another data directory or file, or the build that made it"
	for _, line := range []string{
		"serve -c FILE", "doctor -c FILE", "mcp list -c FILE", "mcp check s -c FILE", "backup -c FILE " + backup + "2",
		"runs list --data DATA", "runs show r --data DATA", "runs follow r --data DATA", "runs cancel r --data DATA",
		"approvals list --data DATA", "approvals show a --data DATA", "approvals approve a --data DATA",
		"audit list --data DATA", "audit export --data DATA", "audit verify --data DATA", "usage --data DATA", "budgets --data DATA",
		"restore --data " + filepath.Join(dir, "new") + " BACKUP",
	} {
		args := strings.Fields(strings.NewReplacer("FILE", file, "DATA", data, "BACKUP", backup).Replace(line))
		var out strings.Builder
		status := Main(t.Context(), Process{Args: args, Env: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &out})
		want := "store " + path + sentence
		if args[0] == "restore" {
			want = "the database of the backup " + backup + sentence
		}
		if status != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d: %s", line, status, out.String())
		}
		if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, database) {
			t.Fatalf("%s changed the file: %v", line, err)
		}
		if _, err := os.Stat(path + "-wal"); err == nil {
			t.Fatalf("%s made a -wal", line)
		}
	}
}
