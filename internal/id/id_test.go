package id_test

import (
	"regexp"
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
				t.Errorf("%s after %v does not sort behind %s", next, wait, last)
			}
			last = next
		}
	})
}
