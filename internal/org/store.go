package org

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// The errors that a Store wraps.
var (
	ErrUnavailable = errors.New("the store is temporarily unavailable")
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("already exists")
	ErrNameTaken   = errors.New("another key has this name")
	ErrChanged     = errors.New("changed since it was read")
)

// LeftError says that an id belonged to a deleted org whose data is still stored. A new org
// with the id could read that data. It wraps ErrExists.
type LeftError struct {
	Org  string
	Left []string // what is stored, such as "runs"
}

func (e *LeftError) Error() string {
	left := strings.Join(e.Left, ", ")
	if n := len(e.Left); n > 1 {
		left = strings.Join(e.Left[:n-1], ", ") + " and " + e.Left[n-1]
	}
	return fmt.Sprintf("the id %q belonged to an org that was deleted, and %s of that org are still stored. Choose another id, or wait until they are deleted: "+
		"the gateway deletes runs after runs.retention_days, conversations when their time is over, and audit rows after audit.retention_days (0 = never)", e.Org, left)
}

// Unwrap returns ErrExists.
func (e *LeftError) Unwrap() error { return ErrExists }

// What a [LeftError] can name.
const (
	LeftRuns          = "runs"
	LeftConversations = "conversations (with stored responses)"
	LeftAudit         = "audit rows"
)

// Contents are an org with everything that the admin API manages of it. The slices have
// the order of the methods of Store, and no Secret has Sealed.
type Contents struct {
	Record
	Keys    []Key
	Servers []MCPServer
	Off     []string // names of shared servers that the org has switched off
	Secrets []Secret
}

// Store stores orgs and the objects that the admin API manages. Implemented by
// store/database; store/storetest tests the contract:
//
//   - An id of another org does not exist: ErrNotFound.
//   - A change and its audit entry are one transaction; see [Author].
//   - A change that has begun is waited for even if ctx ends, so its outcome is
//     reported.
//   - A method that cannot reach the store returns ErrUnavailable.
//   - Times and durations have a precision of one millisecond.
type Store interface {
	// Orgs returns all orgs, ordered by id.
	Orgs(ctx context.Context) ([]Record, error)
	// Org returns one org, or ErrNotFound.
	Org(ctx context.Context, id string) (Record, error)
	// EachOrg calls each for every org with everything that it has, ordered by the id
	// of the org. All is of one moment. The number of queries does not depend on the
	// number of orgs. An error of each ends EachOrg, which returns it.
	EachOrg(ctx context.Context, each func(Contents) error) error
	// AddOrgs adds those of the orgs that do not exist, in one transaction. The others
	// do not change. It has no author: nothing is recorded. If an id cannot be used
	// (see CreateOrg), it returns a *LeftError and adds none.
	AddOrgs(ctx context.Context, orgs []Record) error
	// CreateOrg adds an org. It returns ErrExists if the id is taken, and a *LeftError
	// while runs, conversations or audit rows of a deleted org with this id are stored.
	// What a deleted org spent of its budgets does not count for the new one.
	CreateOrg(ctx context.Context, r Record, by Author) error
	// UpdateOrg replaces Features, Runtime and UpdatedAt of an org. It returns
	// ErrNotFound, or ErrChanged if the stored org is not the [Record.Same] as was.
	UpdateOrg(ctx context.Context, was, r Record, by Author) error
	// DeleteOrg deletes an org with its keys, servers, secrets, agents and cached
	// results, but not its runs, conversations and audit rows. It returns ErrNotFound without
	// the org.
	DeleteOrg(ctx context.Context, id string, by Author) error

	// Keys returns the org's keys, including revoked ones, ordered by CreatedAt,
	// then by id.
	Keys(ctx context.Context, org string) ([]Key, error)
	// KeysAfter returns up to limit of these keys, beginning after the place; the zero value is the
	// beginning.
	KeysAfter(ctx context.Context, org string, after KeyPlace, limit int) ([]Key, error)
	// Key returns one key, also if it is revoked, or ErrNotFound.
	Key(ctx context.Context, org, id string) (Key, error)
	// CreateKey adds a key. It returns ErrNotFound without the org, ErrExists if the id
	// or the hash is taken, and ErrNameTaken if an active key of the org has its name.
	// Keys may have no name.
	CreateKey(ctx context.Context, k Key, by Author) error
	// UpdateKey replaces Name, Role, Rate, Access and ExpiresAt of a key. It returns
	// ErrNotFound, ErrNameTaken if another active key of the org has a new name, or
	// ErrChanged if the stored key differs from was: see [Key.SameSettings].
	UpdateKey(ctx context.Context, was, k Key, by Author) error
	// RotateKey replaces Hash, Hint and Previous of a key. It returns ErrNotFound,
	// ErrExists if the hash is taken, or ErrChanged if the stored key has another hash than
	// was, or differs from it as for UpdateKey.
	RotateKey(ctx context.Context, was, k Key, by Author) error
	// RevokeKey sets RevokedAt to at, in Unix milliseconds, or returns ErrNotFound.
	// A key that is already revoked does not change.
	RevokeKey(ctx context.Context, org, id string, at int64, by Author) error

	// MCPServers returns the org's servers, ordered by Position, then by name.
	MCPServers(ctx context.Context, org string) ([]MCPServer, error)
	// CreateMCPServer adds a server after the others: the store sets its Position.
	// It returns ErrNotFound without the org, ErrExists if the name is taken, and
	// another error if the server is not Storable.
	CreateMCPServer(ctx context.Context, s MCPServer, by Author) error
	// UpdateMCPServer replaces a server except its Position and CreatedAt. It
	// returns ErrNotFound, ErrChanged if the stored server is not the [MCPServer.Same]
	// as was, or another error if the server is not Storable.
	UpdateMCPServer(ctx context.Context, was, s MCPServer, by Author) error
	// DeleteMCPServer deletes a server, or returns ErrNotFound.
	DeleteMCPServer(ctx context.Context, org, name string, by Author) error

	// ServersOff returns the names of the shared servers that the org has switched off,
	// ordered by name.
	ServersOff(ctx context.Context, org string) ([]string, error)
	// SwitchServer switches a shared server of the org on or off. Whether there is one
	// of the name is not checked. A server that is already so does not change. It
	// returns ErrNotFound without the org.
	SwitchServer(ctx context.Context, org, name string, on bool, by Author) error

	// Secrets returns the org's secrets, ordered by name, without Sealed.
	Secrets(ctx context.Context, org string) ([]Secret, error)
	// Secret returns one secret with Sealed, or ErrNotFound.
	Secret(ctx context.Context, org, name string) (Secret, error)
	// PutSecret adds a secret, or replaces Sealed and UpdatedAt of the one with its
	// name. It returns ErrNotFound without the org.
	PutSecret(ctx context.Context, s Secret, by Author) error
	// DeleteSecret deletes a secret, or returns ErrNotFound.
	DeleteSecret(ctx context.Context, org, name string, by Author) error
}
