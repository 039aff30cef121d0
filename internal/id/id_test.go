package id_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
)

func TestIdentifiersDiffer(t *testing.T) {
	for name, c := range map[string]struct {
		make func(string) string
		form string
	}{"random": {id.New, `^p_[a-z2-7]{26}$`}, "ordered": {id.NewOrdered, `^p_[0-9a-v]{26}$`}} {
		seen := map[string]bool{}
		for range 1000 {
			s := c.make("p_")
			if !regexp.MustCompile(c.form).MatchString(s) || seen[s] {
				t.Fatalf("%s: %q", name, s)
			}
			seen[s] = true
		}
	}
}

func TestOrderedIdentifiersSortByTime(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		last := ""
		for _, wait := range []time.Duration{0, time.Millisecond, 31 * time.Millisecond, time.Second, time.Hour, 365 * 24 * time.Hour, 100 * 365 * 24 * time.Hour} {
			time.Sleep(wait + time.Millisecond)
			next := id.NewOrdered("")
			if next <= last {
				t.Errorf("%s, made %v later, does not sort after %s", next, wait, last)
			}
			last = next
		}
	})
}

// Run and request ids convert to UUIDs and back. // L01
func TestAnOrderedIdentifierIsAUUID(t *testing.T) {
	v7 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	for range 100 {
		run := id.NewOrdered("run_")
		seen := map[string]bool{}
		for _, stored := range []string{run, run + ".1", run + ".256", run + ".4095"} {
			shown := id.UUID(stored)
			if !v7.MatchString(shown) || seen[shown] {
				t.Fatalf("UUID(%s) = %s", stored, shown)
			}
			seen[shown] = true
			for _, asked := range []string{shown, strings.ToUpper(shown)} {
				if found := id.FromUUID(asked, "req_", "run_"); !slices.Contains(found, stored) {
					t.Fatalf("FromUUID(%s) = %q, want %s among them", asked, found, stored)
				}
			}
		}
		if shown, want := id.UUID(run+".4096"), id.UUID(run)+".4096"; shown != want || !slices.Contains(id.FromUUID(shown, "run_"), run+".4096") {
			t.Fatalf("UUID(%s.4096) = %s", run, shown)
		}
	}
}

// Only what NewOrdered makes has a UUID: version 7, with 12 zero bits for the round. // L01
func TestUUIDReturnsOtherTextUnchanged(t *testing.T) {
	const made = "run_06j3m6an1ho012000000000000"
	if id.UUID(made) != "01a63b19-570c-7000-8800-000000000000" {
		t.Fatalf("UUID(%s) = %s", made, id.UUID(made))
	}
	for _, text := range []string{
		"", "run_", "run_1", "dev", made[:len(made)-1] + "1", made + ".0", made + ".x", made + ".01", "{01a63b19-570c-7000-8800-000000000000}",
		"run_06j3m6an1gvvvvvvvvvvvvvvvs", "run_06j3m6an1gvvvvvvvvvvvvvvvs.3", "01a63b19-570c-3fff-ffff-ffffffffffff", // another version
		"run_06j3m6an1hvvv2000000000000", "run_06j3m6an1hvvv2000000000000.3", "01a63b19-570c-7fff-8800-000000000000.3", // bits of a round
	} {
		if got := id.UUID(text); got != text {
			t.Errorf("UUID(%q) = %q", text, got)
		}
		if found := id.FromUUID(text, "run_"); !slices.Equal(found, []string{text}) {
			t.Errorf("FromUUID(%q) = %q", text, found)
		}
	}
}
