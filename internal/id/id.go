// Package id makes identifiers that nobody can guess.
package id

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
)

// New returns prefix followed by 26 characters of [a-z2-7]: 128 random bits.
func New(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + strings.ToLower(encoding.EncodeToString(b[:]))
}

var encoding = base32.StdEncoding.WithPadding(base32.NoPadding)
