package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// Doctor names the orgs of which today's usage is added up together.
func TestDoctorNamesOrgsWithTooManyModels(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(dir, app.DatabaseFile)})
	if err != nil {
		t.Fatal(err)
	}
	for _, orgID := range []string{"many", "few"} {
		for i := range audit.MaxUsageModels + strings.Count(orgID, "many") {
			e := audit.Entry{Kind: audit.KindRequest, At: time.Now().UnixMilli(), Body: audit.Request{Attempts: 1, Model: fmt.Sprint("m", i)}}
			if err := store.Record(t.Context(), orgID, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "t.yaml")
	if err := os.WriteFile(file, []byte("data: "+dir+"\nproviders: [{name: demo, kind: demo, models: [demo]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	status := Main(t.Context(), Process{Args: []string{"doctor", "-c", file}, Env: func(string) (string, bool) { return "", false }, Stdout: &out, Stderr: &out})
	mustSay(t, out.String(), "well       usage many/today: more than 1000 models: the usage of the others is added up together; the setting models of keys limits the names of models")
	if status != 0 || strings.Contains(out.String(), "few/today") {
		t.Errorf("exit status %d\n%s", status, out.String())
	}
}
