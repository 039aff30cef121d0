// Package id makes identifiers that nobody can guess.
package id

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"
)

// New returns prefix followed by 26 characters of [a-z2-7]: 128 random bits.
func New(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + strings.ToLower(random.EncodeToString(b[:]))
}

// NewOrdered returns prefix followed by 26 characters of [0-9a-v], which sort by
// the time at which they were made, in milliseconds, and hold 80 random bits. What
// is stored under such ids is stored beside what came just before: a store that
// keeps its rows in order touches few of its pages.
func NewOrdered(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[6:])
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], at[2:])
	return prefix + strings.ToLower(ordered.EncodeToString(b[:]))
}

var (
	random  = base32.StdEncoding.WithPadding(base32.NoPadding)
	ordered = base32.HexEncoding.WithPadding(base32.NoPadding) // its characters sort as what they stand for
)
