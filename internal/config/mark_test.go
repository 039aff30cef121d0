package config

import "testing"

// A byte order mark before a file is skipped: that of the configuration and that of the prices. A second one is not.
func TestAByteOrderMarkIsSkipped(t *testing.T) {
	c, err := Parse("c.yaml", []byte("\ufefflisten: 127.0.0.1:81\n"), nothing)
	if err != nil || c.Listen != "127.0.0.1:81" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Parse("c.yaml", []byte("\ufeff\ufefflisten: 127.0.0.1:81\n"), nothing); err == nil {
		t.Error("two marks are skipped")
	}
	rows, err := ReadRates("r.yaml", []byte("\ufeff- {model: m, from: 2026-01-01, input: 1, output: 1}\n"))
	if err != nil || len(rows) != 1 || rows[0].Model != "m" {
		t.Errorf("%+v, %v", rows, err)
	}
}
