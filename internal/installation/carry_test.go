package installation

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"testing"
)

func TestKeysAreCarriedThereAndBack(t *testing.T) {
	k := Carried{Audit: random(), URLs: random(), Runs: random()}
	s, c := newTable(), Configured{Master: value(one)}
	for range 2 { // it can be repeated
		if err := Import(t.Context(), s, c, k); err != nil {
			t.Fatal(err)
		}
	}
	keys := mustOpen(t, s, c)
	if !keys.Audit.Equal(ed25519.NewKeyFromSeed(k.Audit)) || !bytes.Equal(keys.URLs, k.URLs) {
		t.Errorf("the installation has other keys: %+v", keys)
	}
	sealed, err := mustKeyring(t, RunKeyText(k.Runs)).Seal("o", "n", value("x"))
	if err != nil {
		t.Fatal(err)
	}
	if v, err := keys.Runs.Open("o", "n", sealed); err != nil || v.Reveal() != "x" {
		t.Errorf("a run of the file: %v", err)
	}
	back, err := Export(t.Context(), s, c)
	if err != nil || !bytes.Equal(back.Audit, k.Audit) || !bytes.Equal(back.URLs, k.URLs) || !bytes.Equal(back.Runs, k.Runs) {
		t.Errorf("%v", err)
	}
	if parsed, err := ParseRunKey(RunKeyText(k.Runs)); err != nil || !bytes.Equal(parsed, k.Runs) {
		t.Errorf("%v", err)
	}
}

func TestOtherKeysAreNotOverwritten(t *testing.T) {
	s, c := newTable(), Configured{Master: value(one)}
	k := Carried{URLs: random()}
	if err := Import(t.Context(), s, c, k); err != nil {
		t.Fatal(err)
	}
	var mismatch *MismatchError
	if err := Import(t.Context(), s, c, Carried{URLs: random()}); !errors.As(err, &mismatch) || mismatch.Setting != URLKey {
		t.Errorf("%v", err)
	}
	if err := Import(t.Context(), s, Configured{Master: value(two)}, k); !errors.As(err, &mismatch) || mismatch.Setting != "master_key" {
		t.Errorf("%v", err)
	}
	if _, err := Export(t.Context(), s, Configured{Master: value(two)}); err == nil {
		t.Error("keys were read with another master key")
	}
	if back, err := Export(t.Context(), s, c); err != nil || back.Audit != nil || back.Runs != nil || !bytes.Equal(back.URLs, k.URLs) {
		t.Errorf("%+v, %v", back, err)
	}
	named := Configured{Master: value(one), Audit: ed25519.NewKeyFromSeed(random())}
	other := newTable()
	if err := Import(t.Context(), other, named, Carried{Audit: random()}); err != nil {
		t.Fatal(err)
	}
	if _, ok := other.rows[AuditKey]; ok {
		t.Error("a key that the configuration names was carried over")
	}
}
