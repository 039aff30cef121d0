package app_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	once "github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// secretsTable is a once.Secrets in memory.
type secretsTable map[string]once.Row

func (t secretsTable) Read(_ context.Context, name string) (once.Row, error) {
	r, ok := t[name]
	if !ok {
		return r, once.ErrNotFound
	}
	return r, nil
}

func (t secretsTable) PutIfAbsent(_ context.Context, r once.Row) error {
	if _, ok := t[r.Name]; !ok {
		t[r.Name] = r
	}
	return nil
}

func (t secretsTable) Replace(_ context.Context, _, is once.Row) error {
	t[is.Name] = is
	return nil
}

// The keys of a data directory go to a database and back as they are.
func TestKeysMoveBetweenFilesAndADatabase(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	random := func() []byte { b := make([]byte, 32); _, _ = rand.Read(b); return b }
	text := func(b []byte, end string) []byte { return []byte(base64.StdEncoding.EncodeToString(b) + end) }
	files := map[string][]byte{app.RunKeyFile: text(random(), ""), app.URLKeyFile: random(), app.AuditKeyFile: text(random(), "\n")}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(from, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	table, keys := secretsTable{}, &config.Secrets{Master: secret.NewValue(base64.StdEncoding.EncodeToString(random()))}
	if err := app.CarryKeys(t.Context(), table, keys, from); err != nil || len(table) != 3 {
		t.Fatalf("%d rows, %v", len(table), err)
	}
	if err := app.WriteKeys(t.Context(), table, keys, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has changed: %v", name, err)
		}
	}
	if err := app.WriteKeys(t.Context(), table, keys, to); err == nil {
		t.Error("keys were overwritten")
	}
	none := secretsTable{}
	if err := app.CarryKeys(t.Context(), none, keys, t.TempDir()); err != nil || len(none) != 0 {
		t.Errorf("%d rows of no files, %v", len(none), err)
	}
}
