package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// orgReader is what tells which orgs a store knows. A nil orgReader knows none.
type orgReader interface {
	Orgs(ctx context.Context) ([]org.Record, error)
	OrgIDs(ctx context.Context) ([]string, error)
}

// orgs are the ids of orgs that a command can be about.
type orgs struct {
	file    []string // of the configuration file; nil = no file was named or found
	present []string // in the file or the store
	all     []string // these, and deleted orgs whose runs and audit rows are still stored
}

// orgs returns the orgs of the configuration and of the store.
func (s *readStore) orgs(ctx context.Context, p Process, store orgReader) (known orgs, err error) {
	if s.data == "" || configFile(s.file) != "" { // otherwise the store alone counts
		c, err := s.config(p)
		if err != nil {
			return known, err
		}
		var ids []string
		for _, o := range c.Orgs {
			ids = append(ids, o.ID)
		}
		if configFile(s.file) != "" {
			known.file = ids
		}
		if store == nil || known.file != nil { // without a file, "default" exists only if a gateway has stored it
			known.present = ids
		}
	}
	if store != nil {
		stored, err := store.Orgs(ctx)
		if err != nil {
			return known, err
		}
		for _, o := range stored {
			known.present = append(known.present, o.ID)
		}
		if known.all, err = store.OrgIDs(ctx); err != nil {
			return known, err
		}
	}
	known.present = sortedSet(known.present)
	known.all = sortedSet(append(known.all, known.present...))
	return known, nil
}

func sortedSet(ids []string) []string {
	slices.Sort(ids)
	return slices.Compact(ids)
}

// oneOrg returns the org that --org names. Without the flag it is the only org of the
// configuration file, or else the only org there is.
func (s *readStore) oneOrg(ctx context.Context, p Process, store orgReader) (string, error) {
	if s.org == org.Operator {
		return s.org, nil
	}
	known, err := s.orgs(ctx, p, store)
	if err != nil {
		return "", err
	}
	switch {
	case s.org != "":
		return s.org, known.check(s.org)
	case len(known.file) == 1:
		return known.file[0], nil
	case len(known.present) == 1:
		return known.present[0], nil
	case len(known.present) == 0:
		return "", errors.New("there is no org yet")
	}
	return "", fmt.Errorf("there are %d orgs; name one with --org: %s", len(known.present), strings.Join(known.present, ", "))
}

// check returns an error that lists the orgs if there is no such org.
func (k orgs) check(id string) error {
	if slices.Contains(k.all, id) {
		return nil
	}
	if len(k.all) == 0 {
		return fmt.Errorf("--org: there is no org %s; there is no org yet", id)
	}
	return fmt.Errorf("--org: there is no org %s; the orgs are %s", id, strings.Join(k.all, ", "))
}

// orgWith returns the org in which look finds an id: the one that --org names, or any.
// look returns org.ErrNotFound if its org does not have the id. What names the object,
// such as "run run_1".
func (s *readStore) orgWith(ctx context.Context, p Process, store orgReader, what string, look func(orgID string) error) (string, error) {
	if s.org != "" {
		if _, err := s.oneOrg(ctx, p, store); err != nil {
			return "", err
		}
		err := look(s.org)
		if errors.Is(err, org.ErrNotFound) {
			err = fmt.Errorf("the org %s has no %s", s.org, what)
		}
		return s.org, err
	}
	known, err := s.orgs(ctx, p, store)
	if err != nil {
		return "", err
	}
	for _, id := range known.all {
		if err := look(id); !errors.Is(err, org.ErrNotFound) {
			return id, err
		}
	}
	return "", fmt.Errorf("there is no %s in any org", what)
}
