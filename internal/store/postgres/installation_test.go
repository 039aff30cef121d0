package postgres_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

const installationTable = `
CREATE TABLE installation (
  name   text COLLATE "C" NOT NULL PRIMARY KEY,
  salt   bytea NOT NULL DEFAULT '\x',
  digest bytea NOT NULL DEFAULT '\x',
  sealed bytea NOT NULL DEFAULT '\x',
  state  text COLLATE "C" NOT NULL DEFAULT ''
)`

func TestReplicasShareTheKeysOfPostgres(t *testing.T) {
	db, _ := inSchema(t, installationTable)
	const one, two = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs=", "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
	table := postgres.NewSecrets(db)
	given := installation.Configured{Master: secret.NewValue(one), Pepper: secret.NewValue("pepper")}
	keys, errs := make([]*installation.Keys, 2), make([]error, 2)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() { keys[i], errs[i] = installation.Open(t.Context(), table, given) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(keys[0].URLs, keys[1].URLs) || !keys[0].Audit.Equal(keys[1].Audit) {
		t.Error("two replicas have different keys")
	}
	var mismatch *installation.MismatchError
	other := given
	other.Master = secret.NewValue(two)
	if _, err := installation.Open(t.Context(), table, other); !errors.As(err, &mismatch) || mismatch.Setting != "master_key" {
		t.Errorf("%v", err)
	}
	other.Previous = given.Master
	if _, err := installation.Open(t.Context(), table, other); err != nil {
		t.Error(err)
	}
	other.Previous = secret.Value{}
	last, err := installation.Open(t.Context(), table, other)
	if err != nil || !last.Audit.Equal(keys[0].Audit) {
		t.Errorf("%v", err)
	}
	if _, err := installation.Open(t.Context(), table, given); !errors.As(err, &mismatch) {
		t.Errorf("the old key after the change: %v", err)
	}
}
