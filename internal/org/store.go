package org

import (
	"context"
	"errors"
)

// The errors of a Store, wrapped.
var (
	ErrUnavailable = errors.New("the store cannot be used at the moment")
	ErrNotFound    = errors.New("not found")
	ErrExists      = errors.New("exists already")
	ErrChanged     = errors.New("has changed since it was read")
)

// Store keeps what is managed over the admin API. Every method but those of
// orgs themselves takes the org first; an id of another org is an id that does
// not exist. Times and durations are kept to the millisecond. A change that was
// begun is waited for, also when ctx ends: its outcome is known. A change comes
// with its [Author] and is recorded in the same transaction. Implemented by
// store/memory and store/sqlite; store/storetest says what that means.
type Store interface {
	// Orgs returns all orgs, by id.
	Orgs(ctx context.Context) ([]Record, error)
	// Org returns one org: ErrNotFound.
	Org(ctx context.Context, id string) (Record, error)
	// CreateOrg adds an org: ErrExists if the id is taken.
	CreateOrg(ctx context.Context, r Record, by Author) error
	// UpdateOrg replaces Features, Runtime and UpdatedAt of an org: ErrNotFound.
	UpdateOrg(ctx context.Context, r Record, by Author) error
	// DeleteOrg removes an org with its keys, servers, secrets and kept results; runs stay: ErrNotFound.
	DeleteOrg(ctx context.Context, id string, by Author) error

	// Keys returns the org's keys, revoked ones included, oldest first (of one
	// time, by id).
	Keys(ctx context.Context, org string) ([]Key, error)
	// Key returns one key, also if it is revoked: ErrNotFound.
	Key(ctx context.Context, org, id string) (Key, error)
	// CreateKey adds a key: ErrNotFound without its org, ErrExists if the id
	// or the hash is taken.
	CreateKey(ctx context.Context, k Key, by Author) error
	// UpdateKey replaces Name, Role and Rate of a key that is as was says:
	// ErrNotFound, or ErrChanged if those or RevokedAt have changed since was was read.
	UpdateKey(ctx context.Context, was, k Key, by Author) error
	// RevokeKey sets RevokedAt, once: ErrNotFound. A key that is revoked
	// already stays as it is.
	RevokeKey(ctx context.Context, org, id string, at int64, by Author) error

	// MCPServers returns the org's servers by Position, then name.
	MCPServers(ctx context.Context, org string) ([]MCPServer, error)
	// CreateMCPServer adds a server behind the others (its Position is given
	// here): ErrNotFound without its org, ErrExists if the name is taken, and
	// another error if it is not Storable.
	CreateMCPServer(ctx context.Context, s MCPServer, by Author) error
	// UpdateMCPServer replaces a server but for its Position and CreatedAt:
	// ErrNotFound, or another error if it is not Storable.
	UpdateMCPServer(ctx context.Context, s MCPServer, by Author) error
	// DeleteMCPServer removes a server: ErrNotFound.
	DeleteMCPServer(ctx context.Context, org, name string, by Author) error

	// Secrets returns the org's secrets by name, without Sealed: who lists them
	// has no use for it.
	Secrets(ctx context.Context, org string) ([]Secret, error)
	// Secret returns one secret with what is sealed: ErrNotFound.
	Secret(ctx context.Context, org, name string) (Secret, error)
	// PutSecret adds a secret, or replaces Sealed and UpdatedAt of the one of
	// that name: ErrNotFound without its org.
	PutSecret(ctx context.Context, s Secret, by Author) error
	// DeleteSecret removes a secret: ErrNotFound.
	DeleteSecret(ctx context.Context, org, name string, by Author) error
}
