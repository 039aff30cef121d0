package app_test

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/cli"
)

// manifestFile is the name of a backup's first entry.
const manifestFile = "turnpike-backup.json"

// bundled are the names of the files in a backup.
func bundled() []string {
	return []string{app.AuditKeyFile, app.CheckpointsFile, app.DatabaseFile}
}

// backedUp returns the data directory of a gateway that is running, and a backup
// of it.
func backedUp(t *testing.T) (data, archive string) {
	t.Helper()
	data = t.TempDir()
	tools := NewMCP(t, map[string]Handler{"echo": func(_ context.Context, text string) (string, error) { return text, nil }})
	up := NewUpstream(t, Script(Says("done")))
	variables := Environment()
	variables["TURNPIKE_MASTER_KEY"] = masterCanary
	g := MustRunIn(t, data, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml(), variables)
	g.Post(Question).Completion(t)
	archive = filepath.Join(t.TempDir(), "backup.tar")
	if status, out := Turnpike(t, "backup", "--data", data, archive); status != 0 || !strings.Contains(out, "turnpike.db: ") || !strings.Contains(out, "audit.key: ") {
		t.Fatalf("status %d: %s", status, out)
	}
	return data, archive
}

const masterCanary = "9f1c3b7ae05d24860b6e8d13f7c2a94e51d8067bc3fa92e41d705b86ce3fa912"

// entries returns the files of an archive by name.
func entries(t *testing.T, archive string) map[string]string {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]string{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has the mode %o", h.Name, h.Mode)
		}
		all[h.Name] = string(text)
	}
}

func TestABackupHoldsTheDataAndNoSecretOfTheConfiguration(t *testing.T) {
	NoLeaks(t)
	data, archive := backedUp(t)
	info, err := os.Stat(archive)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the archive has the mode %v, %v", info.Mode(), err)
	}
	all := entries(t, archive)
	if !strings.Contains(all[manifestFile], `"turnpike_backup": 1`) || !strings.HasPrefix(all[app.DatabaseFile], "SQLite format 3") {
		t.Errorf("the archive has the manifest %q", all[manifestFile])
	}
	key, err := os.ReadFile(filepath.Join(data, app.AuditKeyFile))
	if err != nil || all[app.AuditKeyFile] != string(key) {
		t.Errorf("the archive has another audit.key, %v", err)
	}
	for name, text := range all {
		for _, canary := range []string{"CANARY", masterCanary, "owner-key"} {
			if strings.Contains(text, canary) {
				t.Errorf("%s holds %q", name, canary)
			}
		}
	}
	left, err := os.ReadDir(filepath.Dir(archive))
	if err != nil || len(left) != 1 {
		t.Errorf("the directory of the archive has %v, %v", left, err)
	}
}

func TestABackupOverwritesNothing(t *testing.T) {
	NoLeaks(t)
	data, archive := backedUp(t)
	before, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	if status, out := Turnpike(t, "backup", "--data", data, archive); status != 1 || !strings.Contains(out, "already exists; choose another file name") {
		t.Errorf("status %d: %s", status, out)
	}
	if after, err := os.ReadFile(archive); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the archive was changed, %v", err)
	}
	if status, out := Turnpike(t, "backup", "--data", t.TempDir(), archive+"2"); status != 1 || !strings.Contains(out, "no Turnpike data found in") {
		t.Errorf("status %d: %s", status, out)
	}
}

// rewritten returns a copy of an archive whose entries were changed. An entry that
// change returns no text for is left out.
func rewritten(t *testing.T, archive string, change func(name, text string) (string, string)) string {
	t.Helper()
	all := entries(t, archive)
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range append([]string{manifestFile}, bundled()...) {
		text, ok := all[name]
		if !ok {
			continue
		}
		name, text = change(name, text)
		if text == "" {
			continue
		}
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(text)), Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "changed.tar")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// What cannot be trusted is refused, and leaves no file behind.
func TestARestoreRefusesWhatIsNoWholeBackup(t *testing.T) {
	NoLeaks(t)
	data, archive := backedUp(t)
	changed := func(file string, change func(text string) string) string {
		return rewritten(t, archive, func(name, text string) (string, string) {
			if name == file {
				text = change(text)
			}
			return name, text
		})
	}
	whole, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(t.TempDir(), "cut.tar")
	if err := os.WriteFile(cut, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, file, want string }{
		{"another file", filepath.Join(data, app.DatabaseFile), "not a Turnpike backup"},
		{"cut off", cut, "the backup is not complete"},
		{"a changed byte", changed(app.DatabaseFile, func(s string) string { return s[:5000] + "!" + s[5001:] }), "the backup is damaged"},
		{"another size", changed(app.DatabaseFile, func(s string) string { return s + "!" }), "the backup is damaged"},
		{"without its database", changed(app.DatabaseFile, func(string) string { return "" }), "the backup is not complete"},
		{"a later format", changed(manifestFile, func(s string) string { return strings.Replace(s, `"turnpike_backup": 1`, `"turnpike_backup": 2`, 1) }), "format 2"},
		{"a name with a path", changed(manifestFile, func(s string) string { return strings.Replace(s, `"audit.key"`, `"../audit.key"`, 1) }), "not a valid backup"},
		{"no file", filepath.Join(data, "none.tar"), "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "to")
			if status, out := Turnpike(t, "restore", "--data", to, tt.file); status != 1 || !strings.Contains(out, tt.want) {
				t.Errorf("status %d: %s, want %q", status, out, tt.want)
			}
			left, err := filepath.Glob(filepath.Join(to, "*"))
			if err != nil || len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != app.DatabaseFile+".lock" {
				t.Errorf("the data directory has %v, %v", left, err)
			}
			if status, out := Turnpike(t, "restore", "--data", to, archive); status != 0 {
				t.Errorf("the backup itself is not restored afterwards, status %d: %s", status, out)
			}
		})
	}
}

func TestARestoreNeedsAnEmptyDirectory(t *testing.T) {
	NoLeaks(t)
	data, archive := backedUp(t)
	if status, out := Turnpike(t, "restore", "--data", data, archive); status != 1 || !strings.Contains(out, "is not empty") {
		t.Errorf("status %d: %s", status, out)
	}
	to := t.TempDir()
	if status, out := Turnpike(t, "restore", "--data", to, archive); status != 0 || !strings.Contains(out, "0 unfinished runs ended as lost") {
		t.Fatalf("status %d: %s", status, out)
	}
	for _, name := range bundled() {
		info, err := os.Stat(filepath.Join(to, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if status, out := AuditNow(t, to, "list", "--org", "o", "--kind", "restore"); status != 0 || !strings.Contains(out, `"last_row":1`) {
		t.Errorf("status %d: %s", status, out)
	}
	if status, out := AuditNow(t, to, "verify"); status != 0 {
		t.Errorf("audit verify: status %d: %s", status, out)
	}
	if status, out := Turnpike(t, "restore", "--data", to, archive); status != 1 || !strings.Contains(out, "is not empty") {
		t.Errorf("status %d: %s", status, out)
	}
}

// A file of checkpoints that another database has is not mixed with the backup's.
func TestARestoreLeavesTheCheckpointsOfAnotherDatabaseAlone(t *testing.T) {
	NoLeaks(t)
	_, archive := backedUp(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "elsewhere")
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := func(name string) (string, bool) {
		if name == "TURNPIKE_AUDIT_CHECKPOINTS" {
			return file, true
		}
		return "", false
	}
	restore := func() (int, string) {
		var out bytes.Buffer
		status := cli.Main(t.Context(), cli.Process{Args: []string{"restore", "--data", filepath.Join(dir, "to"), archive}, Env: env, Stdout: &out, Stderr: &out})
		return status, out.String()
	}
	if status, out := restore(); status != 1 || !strings.Contains(out, "belongs to another database") {
		t.Errorf("status %d: %s", status, out)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if status, out := restore(); status != 0 {
		t.Errorf("status %d: %s", status, out)
	}
	if text, err := os.ReadFile(file); err != nil || !bytes.Contains(text, []byte(`"org":"o"`)) {
		t.Errorf("the file of checkpoints has %q, %v", text, err)
	}
}

// A checkpoint that is being written is not in the backup: it may speak of rows that
// the copy of the database lacks.
func TestABackupHoldsWholeCheckpointsOnly(t *testing.T) {
	NoLeaks(t)
	data, archive := backedUp(t)
	first := `{"org":"elsewhere"}` + "\n"
	if err := os.WriteFile(filepath.Join(data, app.CheckpointsFile), []byte(first+`{"org":"o","num`), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, out := Turnpike(t, "backup", "--data", data, archive+"2"); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	if got := entries(t, archive+"2")[app.CheckpointsFile]; got != first {
		t.Errorf("the archive has the checkpoints %q, want %q", got, first)
	}
}

// A key that was revoked after the backup is valid again, and the restore names it.
func TestARestoreNamesTheKeysThatAreValidAgain(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("done")))
	data, archive := t.TempDir(), filepath.Join(t.TempDir(), "backup.tar")
	d := Manage(MustRunIn(t, data, Site{Upstream: up.URL}.Yaml(), Environment()))
	id := d.Do("POST", "/api/keys", "owner-key", `{"name":"leaked","role":"member"}`, 201)["id"].(string)
	gone := d.Do("POST", "/api/keys", "owner-key", `{"name":"gone","role":"member"}`, 201)["id"].(string)
	d.Do("DELETE", "/api/keys/"+gone, "owner-key", "", 200)
	d.Do("PUT", "/api/secrets/gh", "owner-key", `{"value":"x"}`, 200)
	if status, out := Turnpike(t, "backup", "--data", data, archive); status != 0 {
		t.Fatalf("status %d: %s", status, out)
	}
	d.Do("DELETE", "/api/keys/"+id, "owner-key", "", 200)
	_ = d.Stop()

	restored := t.TempDir()
	status, out := Turnpike(t, "restore", "--data", restored, archive)
	if status != 0 || !strings.Contains(out, "1 API key of the backup can be used") ||
		!strings.Contains(out, "leaked ("+id+", member)") || strings.Contains(out, "gone") {
		t.Errorf("status %d: %s", status, out)
	}
	if !strings.Contains(out, "put your copy of "+filepath.Join(restored, "master.key")) {
		t.Errorf("the missing master key is not named: %s", out)
	}
	withKey := t.TempDir()
	key, err := os.ReadFile(filepath.Join(data, "master.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(withKey, "master.key"), key, 0o600)
	}
	if status, out := Turnpike(t, "restore", "--data", withKey, archive); err != nil || status != 0 || strings.Contains(out, "master.key") {
		t.Errorf("%v, status %d: %s", err, status, out)
	}
}
