package directory

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/database/sqlitetest"
)

// counted is a store of orgs that counts how often it is asked.
type counted struct {
	org.Store
	calls map[string]int
}

// Orgs implements org.Store.
func (c *counted) Orgs(ctx context.Context) ([]org.Record, error) {
	c.calls["Orgs"]++
	return c.Store.Orgs(ctx)
}

// Org implements org.Store.
func (c *counted) Org(ctx context.Context, id string) (org.Record, error) {
	c.calls["Org"]++
	return c.Store.Org(ctx, id)
}

// EachOrg implements org.Store.
func (c *counted) EachOrg(ctx context.Context, each func(org.Contents) error) error {
	c.calls["EachOrg"]++
	return c.Store.EachOrg(ctx, each)
}

// AddOrgs implements org.Store.
func (c *counted) AddOrgs(ctx context.Context, orgs []org.Record) error {
	c.calls["AddOrgs"]++
	return c.Store.AddOrgs(ctx, orgs)
}

// CreateOrg implements org.Store.
func (c *counted) CreateOrg(ctx context.Context, r org.Record, by org.Author) error {
	c.calls["CreateOrg"]++
	return c.Store.CreateOrg(ctx, r, by)
}

// Keys implements org.Store.
func (c *counted) Keys(ctx context.Context, orgID string) ([]org.Key, error) {
	c.calls["Keys"]++
	return c.Store.Keys(ctx, orgID)
}

// MCPServers implements org.Store.
func (c *counted) MCPServers(ctx context.Context, orgID string) ([]org.MCPServer, error) {
	c.calls["MCPServers"]++
	return c.Store.MCPServers(ctx, orgID)
}

// Secrets implements org.Store.
func (c *counted) Secrets(ctx context.Context, orgID string) ([]org.Secret, error) {
	c.calls["Secrets"]++
	return c.Store.Secrets(ctx, orgID)
}

// goroutines returns how many there are besides those of the store, which end a little after each read.
func goroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	all := strings.Split(string(stacks), "\n\n")
	return len(slices.DeleteFunc(all, func(stack string) bool { return strings.Contains(stack, "sql") }))
}

// The start asks the store as often for many orgs as for one, and starts no goroutine for
// any of them; a change of one org reads that org alone.
func TestTheStartAsksTheStoreAsOftenForManyOrgsAsForOne(t *testing.T) { // A07
	const many = 500
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	tools := catalog.New(catalog.Options{Log: log})
	defer tools.Close()
	for _, n := range []int{1, many} {
		store := &counted{sqlitetest.Open(t, database.Options{}), map[string]int{}}
		declared := map[string]org.FromFile{}
		for i := range n {
			stored, file := fmt.Sprintf("stored%d", i), fmt.Sprintf("file%d", i)
			if err := store.Store.CreateOrg(t.Context(), org.Record{ID: stored}, org.Author{}); err != nil {
				t.Fatal(err)
			}
			for k := range 3 {
				if err := store.Store.CreateKey(t.Context(), org.Key{Org: stored, ID: fmt.Sprint(k), Hash: sha256.Sum256(fmt.Appendf(nil, "%s-%d", stored, k))}, org.Author{}); err != nil {
					t.Fatal(err)
				}
			}
			declared[file] = org.FromFile{Org: true, Record: org.Record{ID: file}, Keys: []org.Key{{Org: file, ID: "k", Hash: sha256.Sum256([]byte(file))}}}
		}
		before := goroutines()
		pool := mcppool.New(mcppool.Options{Log: log})
		d, err := New(t.Context(), Options{Store: store, FromFile: org.File{Orgs: declared}, Pool: pool, Catalog: tools, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(store.calls); got != "map[AddOrgs:1 EachOrg:1]" {
			t.Errorf("with %d orgs the start asked the store %s", 2*n, got)
		}
		if more := goroutines() - before; more > 5 {
			t.Errorf("with %d orgs the start has left %d goroutines", 2*n, more)
		}
		for i := range n {
			for _, key := range []string{fmt.Sprintf("stored%d-0", i), fmt.Sprintf("stored%d-2", i), fmt.Sprintf("file%d", i)} {
				if !d.knows(key) {
					t.Errorf("with %d orgs, the key %s does not work", 2*n, key)
				}
			}
		}
		clear(store.calls)
		if err := d.Reload(t.Context(), "stored0"); err != nil {
			t.Fatal(err)
		}
		d.Close()
		if got := fmt.Sprint(store.calls); got != "map[Keys:1 MCPServers:1 Org:1 Secrets:1]" {
			t.Errorf("with %d orgs the change of one asked the store %s", 2*n, got)
		}
		pool.Close()
	}
}
