package database

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/toolcache"
)

func result(name byte, value string) toolcache.Entry {
	return toolcache.Entry{Name: toolcache.Name{name}, Value: value, MAC: []byte{1}, ExpiresAt: 1 << 60}
}

func TestAResultDoesNotWaitForAFullQueue(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	release := blockWriter(t, s)
	told := make(chan error, maxQueue+1)
	bounds := toolcache.Bounds{Entries: 10, Bytes: 100}
	for range maxQueue { // the writer has taken one more
		s.KeepResult("a", result(1, "one"), bounds, func(err error) { told <- err })
	}
	if err := <-told; !errors.Is(err, errBusy) {
		t.Errorf("got %v, want errBusy", err)
	}
	s.DropResult("a", result(1, "one")) // has no result
	release()
	for range maxQueue - 1 {
		if err := <-told; err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.KeepResult("a", result(1, "one"), bounds, func(err error) { told <- err })
	if err := <-told; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestCloseReportsQueuedResults(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	told := make(chan error, 1)
	s.KeepResult("a", result(1, "one"), toolcache.Bounds{Entries: 10, Bytes: 100}, func(err error) { told <- err })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err != nil {
		t.Error(err)
	}
}

func TestTheStoredSizesMatchTheEntries(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	for _, id := range []string{"a", "b"} {
		if err := s.CreateOrg(t.Context(), org.Record{ID: id}, org.Author{}); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(orgID string, e toolcache.Entry, bounds toolcache.Bounds) {
		told := make(chan error, 1)
		s.KeepResult(orgID, e, bounds, func(err error) { told <- err })
		if err := <-told; err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		for _, query := range []string{
			`SELECT org || ' ' || entries || ' ' || bytes FROM tool_cache_sizes WHERE entries > 0 ORDER BY org`,
			`SELECT org || ' ' || count(*) || ' ' || sum(length(value)) FROM tool_cache GROUP BY org ORDER BY org`,
		} {
			got, err := list(t.Context(), s.db, func(row scanner) (string, error) {
				var line string
				err := row.Scan(&line)
				return line, err
			}, query)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %q, %v, want %q from %s", got, err, want, query)
			}
		}
	}
	wide := toolcache.Bounds{Entries: 100, Bytes: 1000}
	for i := range byte(10) {
		keep("a", result(i, strings.Repeat("x", int(i))), wide)
	}
	keep("b", result(1, "one"), wide)
	check("a 10 45", "b 1 3")
	keep("a", result(3, "longer"), wide) // replaces an entry
	check("a 10 48", "b 1 3")
	keep("a", result(20, "y"), toolcache.Bounds{Entries: 4, Bytes: 20})
	check("a 3 16", "b 1 3")
	over := result(30, "zz")
	over.ExpiresAt = 5
	keep("b", over, wide)
	check("a 3 16", "b 2 5")
	last := result(31, "z")
	last.KeptAt = 5
	keep("a", last, wide) // also deletes expired entries of other orgs
	check("a 4 17", "b 1 3")
	if err := s.DeleteOrg(t.Context(), "a", org.Author{}); err != nil {
		t.Fatal(err)
	}
	check("b 1 3")
	if err := s.CreateOrg(t.Context(), org.Record{ID: "a"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	keep("a", result(1, "one"), wide)
	check("a 1 3", "b 1 3")
}
