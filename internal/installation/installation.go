// Package installation holds the rules for what exists once per installation: keys that all replicas on one database
// must share.
//
//	configuration ─► Open ─► Secrets (a table of the database)
//	                  └────► Keys
//
// A key that the configuration names is compared with the one that the installation was started with: the table keeps a
// digest of it. A key that it does not name is made by the first start and kept in the table, sealed under the master key.
//
//	keys, err := installation.Open(ctx, table, installation.Configured{Master: master, Pepper: pepper})
//
// A digest is PBKDF2-SHA256 with a salt of its own: a pepper may be a word, and a reader of the table must not find it.
package installation

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Names of the rows.
const (
	Master     = "master_key"
	MasterNext = "master_key.next" // the key of a rotation; without one it is equal to Master, or absent
	Pepper     = "cache_pepper"
	AuditKey   = "audit_key"
	URLKey     = "url_key"
	RunKey     = "run_key"
)

// What is sealed belongs to no org, and its name is sealedSpace with the name of the row.
const (
	noOrg       = ""
	sealedSpace = "installation/"
)

// Iterations is the cost of a digest: about 0.2 s.
const Iterations = 200_000

// Row is what the table keeps of one secret.
type Row struct {
	Name   string
	Salt   []byte
	Digest []byte
	Sealed []byte // the secret, sealed under the master key; nil = the configuration has it
	State  string // stays as it is
}

// ErrNotFound reports that there is no row.
var ErrNotFound = errors.New("no such secret of the installation")

// Secrets is the table. It is safe for use by several processes.
type Secrets interface {
	// Read returns a row. The error wraps ErrNotFound if there is none.
	Read(ctx context.Context, name string) (Row, error)

	// PutIfAbsent adds a row, unless there is one of that name. Then it does nothing.
	PutIfAbsent(ctx context.Context, r Row) error

	// Replace puts a row in the place of one with the same name. It does nothing if the table has another one by now:
	// one with another digest or other sealed bytes.
	Replace(ctx context.Context, was, is Row) error
}

// Configured is what the configuration names. A zero value is none, except that Master is required.
type Configured struct {
	Master   secret.Value // in the form of [secret.ParseKey]
	Previous secret.Value // the master key before a rotation
	Pepper   secret.Value
	Audit    ed25519.PrivateKey
}

// Keys are those of the installation.
type Keys struct {
	Pepper secret.Value
	Audit  ed25519.PrivateKey
	URLs   []byte          // 32 bytes that sign URLs
	RunKey []byte          // 32 bytes, of which Runs is made
	Runs   *secret.Keyring // seals what durable runs keep for their next owner; it also opens what the master key has sealed

	// Renews reports whether what was sealed under the previous master key is to be put under the present one. It is
	// false for a replica that still has the old key of a rotation as its present one.
	Renews bool
}

// MismatchError reports a secret that is not the one of the installation.
type MismatchError struct {
	Setting string // configuration key
	Why     string // and what to do
}

func (e *MismatchError) Error() string { return e.Setting + ": " + e.Why }

// Open compares what is configured with the table, and returns the keys of the installation. The first start fills the
// table; of several that begin at the same time, one does. The error wraps a *[MismatchError] if a secret is not the one of
// the installation: then the gateway must not serve.
func Open(ctx context.Context, table Secrets, c Configured) (*Keys, error) {
	o := opener{table: table, c: c}
	var err error
	if o.keyring, err = keyring(c.Master, c.Previous); err != nil {
		return nil, err
	}
	if err := o.master(ctx); err != nil {
		return nil, err
	}
	keys := &Keys{Renews: o.renews}
	pepper, err := o.shared(ctx, Pepper, Pepper, []byte(c.Pepper.Reveal()), func() []byte { return []byte(rand.Text()) })
	if err != nil {
		return nil, err
	}
	keys.Pepper = secret.NewValue(string(pepper))
	var seed []byte
	if c.Audit != nil {
		seed = c.Audit.Seed()
	}
	if seed, err = o.shared(ctx, AuditKey, "audit.key", seed, random); err != nil {
		return nil, err
	}
	if len(seed) != ed25519.SeedSize {
		return nil, o.damaged(AuditKey)
	}
	keys.Audit = ed25519.NewKeyFromSeed(seed)
	if keys.URLs, err = o.made(ctx, URLKey); err != nil {
		return nil, err
	}
	if keys.RunKey, err = o.made(ctx, RunKey); err != nil {
		return nil, err
	}
	if keys.Runs, err = RunKeys(keys.RunKey, c.Master); err != nil {
		return nil, err
	}
	if o.ended.Name != "" { // with the new key all of it was opened
		err = table.Replace(ctx, o.old, o.ended)
	}
	return keys, err
}

// RunKeys returns what seals with a key of runs, and also opens what the master key has sealed.
func RunKeys(key []byte, master secret.Value) (*secret.Keyring, error) {
	return keyring(secret.NewValue(base64.StdEncoding.EncodeToString(key)), master)
}

// Carried are keys that an installation had in files. nil = there is none.
type Carried struct {
	Audit ed25519.PrivateKey // not used if the configuration has a key
	URLs  []byte             // 32 bytes
	Runs  []byte             // 32 bytes
}

// Carry fills the table with the keys of an installation that had none. A key that the table has stays.
func Carry(ctx context.Context, table Secrets, c Configured, k Carried) error {
	o := opener{table: table, c: c}
	var err error
	if o.keyring, err = keyring(c.Master, c.Previous); err != nil {
		return err
	}
	keys := map[string][]byte{URLKey: k.URLs, RunKey: k.Runs}
	if k.Audit != nil && c.Audit == nil {
		keys[AuditKey] = k.Audit.Seed()
	}
	for name, key := range keys {
		if key == nil {
			continue
		}
		if len(key) != 32 {
			return fmt.Errorf("the key %s has %d bytes; want 32", name, len(key))
		}
		if _, err := o.stored(ctx, name, func() (Row, error) { return o.sealedRow(name, key) }); err != nil {
			return err
		}
	}
	return nil
}

// Audit returns what signs the audit, and changes nothing; for commands. The error wraps ErrNotFound before the first
// start, and a *[MismatchError] as that of Open.
func Audit(ctx context.Context, table Secrets, c Configured) (ed25519.PrivateKey, error) {
	if c.Audit != nil {
		return c.Audit, nil
	}
	o := opener{table: table, c: c}
	var err error
	if o.keyring, err = keyring(c.Master, c.Previous); err != nil {
		return nil, err
	}
	row, err := table.Read(ctx, AuditKey)
	if err != nil {
		return nil, err
	}
	seed, err := o.unseal(row, "audit.key")
	if err != nil {
		return nil, err
	}
	if len(seed) != ed25519.SeedSize {
		return nil, o.damaged(AuditKey)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

func keyring(master, previous secret.Value) (*secret.Keyring, error) {
	ring, err := secret.NewKeyring(master)
	if err != nil {
		return nil, fmt.Errorf("master_key: %w", err)
	}
	if previous.IsZero() {
		return ring, nil
	}
	if ring, err = ring.WithPrevious(previous); err != nil {
		return nil, fmt.Errorf("master_key_previous: %w", err)
	}
	return ring, nil
}

func random() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never returns an error
	return key
}

// opener is one use of Open.
type opener struct {
	table   Secrets
	c       Configured
	keyring *secret.Keyring

	renews     bool // see Keys
	old, ended Row  // of a rotation that this start ends: Master before and after it
}

// newRow returns a row with the digest of a secret.
func newRow(name string, value []byte) (Row, error) {
	salt := random()
	digest, err := digestOf(value, salt)
	return Row{Name: name, Salt: salt, Digest: digest}, err
}

func digestOf(value, salt []byte) ([]byte, error) {
	return pbkdf2.Key(sha256.New, string(value), salt, Iterations, sha256.Size)
}

// is reports whether a row is that of the secret.
func (r Row) is(value []byte) bool {
	digest, err := digestOf(value, r.Salt)
	return err == nil && subtle.ConstantTimeCompare(digest, r.Digest) == 1
}

// same reports whether two rows have one digest.
func (r Row) same(other Row) bool {
	return bytes.Equal(r.Salt, other.Salt) && bytes.Equal(r.Digest, other.Digest)
}

// stored returns the row of a name. If there is none, it is made first; that of another process may come before it.
func (o *opener) stored(ctx context.Context, name string, makeRow func() (Row, error)) (Row, error) {
	row, err := o.table.Read(ctx, name)
	if !errors.Is(err, ErrNotFound) {
		return row, err
	}
	made, err := makeRow()
	if err != nil {
		return Row{}, err
	}
	if err := o.table.PutIfAbsent(ctx, made); err != nil {
		return Row{}, err
	}
	return o.table.Read(ctx, name)
}

// master compares the master key. A rotation begins with a start that has the old one as master_key_previous: from then on
// replicas with either of them start. It ends with a start that has the new one and no previous one.
func (o *opener) master(ctx context.Context) error {
	key, err := secret.ParseKey(o.c.Master)
	if err != nil {
		return fmt.Errorf("master_key: %w", err)
	}
	row, err := o.stored(ctx, Master, func() (Row, error) { return newRow(Master, key[:]) })
	if err != nil {
		return err
	}
	next, err := o.table.Read(ctx, MasterNext)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	rotating := err == nil && !next.same(row)
	switch {
	case row.is(key[:]):
		o.renews = !rotating
		return nil
	case rotating && next.is(key[:]):
		o.renews = true
		if o.c.Previous.IsZero() {
			o.old, o.ended = row, next
			o.ended.Name = Master
		}
		return nil
	}
	o.renews = true
	return o.rotate(ctx, row, next, key[:])
}

// rotate begins a rotation of the master key, if the previous one is that of the installation. next is the zero Row if
// there was no rotation before.
func (o *opener) rotate(ctx context.Context, row, next Row, key []byte) error {
	if o.c.Previous.IsZero() {
		return &MismatchError{"master_key", "is not that of the installation; set it to the key that the other replicas have, " +
			"or, to change it, set master_key_previous to that key"}
	}
	previous, err := secret.ParseKey(o.c.Previous)
	if err != nil {
		return fmt.Errorf("master_key_previous: %w", err)
	}
	if !row.is(previous[:]) {
		return &MismatchError{"master_key", "neither master_key nor master_key_previous is that of the installation; " +
			"set one of them to the key that the other replicas have"}
	}
	begun, err := newRow(MasterNext, key)
	if err != nil {
		return err
	}
	switch {
	case next.Name == "":
		err = o.table.PutIfAbsent(ctx, begun)
	case next.same(row): // of a rotation that has ended
		err = o.table.Replace(ctx, next, begun)
	}
	if err != nil {
		return err
	}
	if next, err = o.table.Read(ctx, MasterNext); err != nil || next.is(key) {
		return err
	}
	return &MismatchError{"master_key", "another rotation of the master key has begun; set master_key to the new key that the other " +
		"replicas have, " +
		"and end that rotation first: start a replica with the new key and without master_key_previous"}
}

// shared returns a secret that the configuration may name. If it does not, it is made once, and sealed.
func (o *opener) shared(ctx context.Context, name, setting string, configured []byte, fresh func() []byte) ([]byte, error) {
	row, err := o.stored(ctx, name, func() (Row, error) {
		if len(configured) > 0 {
			return newRow(name, configured)
		}
		return o.sealedRow(name, fresh())
	})
	switch {
	case err != nil:
		return nil, err
	case len(configured) == 0:
		return o.opened(ctx, row, setting)
	case row.is(configured):
		return configured, nil
	case row.Sealed != nil:
		return nil, &MismatchError{setting, "is not that of the installation, which was made at its first start and is kept in the database; " +
			"remove the setting, or " + forget(name)}
	}
	return nil, &MismatchError{setting, "is not that of the installation; set it to the value that the other replicas have, or, to change " +
		"it, " + forget(name)}
}

// forget says how an installation gets another secret.
func forget(name string) string {
	return fmt.Sprintf("stop all replicas and delete the row '%s' of the table installation", name)
}

// made returns a key of 32 bytes that only the table has.
func (o *opener) made(ctx context.Context, name string) ([]byte, error) {
	row, err := o.stored(ctx, name, func() (Row, error) { return o.sealedRow(name, random()) })
	if err != nil {
		return nil, err
	}
	key, err := o.opened(ctx, row, name)
	if err == nil && len(key) != 32 {
		err = o.damaged(name)
	}
	return key, err
}

// sealedRow returns a row that keeps a secret.
func (o *opener) sealedRow(name string, value []byte) (Row, error) {
	row, err := newRow(name, value)
	if err != nil {
		return Row{}, err
	}
	row.Sealed, err = o.keyring.Seal(noOrg, sealedSpace+name, secret.NewValue(base64.StdEncoding.EncodeToString(value)))
	return row, err
}

// opened returns the secret that a row keeps. If it is under the previous master key, it is put under the present one.
func (o *opener) opened(ctx context.Context, row Row, setting string) ([]byte, error) {
	value, err := o.unseal(row, setting)
	if err != nil {
		return nil, err
	}
	if !o.renews {
		return value, nil
	}
	renewed, err := o.keyring.Renew(noOrg, sealedSpace+row.Name, row.Sealed)
	if err != nil || bytes.Equal(renewed, row.Sealed) {
		return value, err
	}
	is := row
	is.Sealed = renewed
	return value, o.table.Replace(ctx, row, is)
}

func (o *opener) unseal(row Row, setting string) ([]byte, error) {
	if row.Sealed == nil {
		return nil, &MismatchError{setting, "is missing; the installation has one of its configuration: set it to the value that the other " +
			"replicas have, or, to have one made, " + forget(row.Name)}
	}
	text, err := o.keyring.Open(noOrg, sealedSpace+row.Name, row.Sealed)
	if errors.Is(err, secret.ErrMasterKey) {
		return nil, &MismatchError{"master_key", fmt.Sprintf("does not open the secret '%s' of the installation, so the key is being changed; "+
			"set master_key_previous to the other key of the change", row.Name)}
	}
	if err != nil {
		return nil, o.damaged(row.Name)
	}
	value, err := base64.StdEncoding.DecodeString(text.Reveal())
	if err != nil {
		return nil, o.damaged(row.Name)
	}
	return value, nil
}

func (o *opener) damaged(name string) error {
	return fmt.Errorf("the secret '%s' in the table installation is damaged; restore the database, or %s", name, forget(name))
}

// Check does what Open does, and changes nothing: an error is one that a start would return.
func Check(ctx context.Context, table Secrets, c Configured) error {
	_, err := Open(ctx, &unwritten{table, map[string]Row{}}, c)
	return err
}

// unwritten is a table with rows over it that are not stored.
type unwritten struct {
	table Secrets
	rows  map[string]Row
}

// Read implements Secrets.
func (u *unwritten) Read(ctx context.Context, name string) (Row, error) {
	if r, ok := u.rows[name]; ok {
		return r, nil
	}
	return u.table.Read(ctx, name)
}

// PutIfAbsent implements Secrets.
func (u *unwritten) PutIfAbsent(_ context.Context, r Row) error {
	u.rows[r.Name] = r
	return nil
}

// Replace implements Secrets.
func (u *unwritten) Replace(_ context.Context, _, is Row) error {
	u.rows[is.Name] = is
	return nil
}
