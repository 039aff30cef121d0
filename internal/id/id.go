// Package id generates unguessable identifiers and converts them to UUIDs for systems
// that expect them.
package id

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// New returns prefix followed by 26 characters [a-z2-7] that encode 128 random bits.
func New(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never returns an error: it ends the process instead
	return prefix + random.EncodeToString(b[:])
}

// NewOrdered returns prefix followed by 26 characters [0-9a-v] that sort by creation
// time, in milliseconds. They encode the 128 bits of a UUIDv7 (RFC 9562, section 5.7)
// with 62 random bits. The 12 bits rand_a of the RFC are zero: [UUID] uses them for the
// number of a round.
//
// Rows with consecutive ids are stored next to each other, so that a store which orders
// rows by id writes few pages.
func NewOrdered(prefix string) string {
	var b uuid.UUID
	_, _ = rand.Read(b[8:])
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], at[2:])
	b[6] = 0x70             // version 7
	b[8] = b[8]&0x3f | 0x80 // the variant of the RFC
	return encode(prefix, b)
}

var (
	random  = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
	ordered = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding) // its order is that of the encoded bits
)

// maxRounds is the first round number that does not fit into the 12 bits of rand_a.
const maxRounds = 1 << 12

// UUID converts an identifier of [NewOrdered] to a UUID, without its prefix. The
// identifier may end in a dot and a round number, as in "run_….2"; the UUID then contains
// the number. Numbers from 4096 do not fit: they follow the UUID after a dot. UUID returns
// any other text unchanged.
func UUID(s string) string {
	u, round, ok := parse(s)
	switch {
	case !ok:
		return s
	case round == 0:
		return u.String()
	case round >= maxRounds:
		return u.String() + "." + strconv.Itoa(round)
	}
	return withRound(u, round).String()
}

// FromUUID is the inverse of [UUID]: it returns all identifiers with one of the prefixes
// that UUID converts to text. If text is not a UUID, it returns only text.
func FromUUID(text string, prefixes ...string) []string {
	plain, suffix, _ := strings.Cut(text, ".")
	u, err := uuid.Parse(plain)
	if err != nil || len(plain) != 36 || !isV7(u) {
		return []string{text}
	}
	switch n := roundOf(u); {
	case n > 0 && suffix != "":
		return []string{text} // UUID does not return such text
	case n > 0:
		suffix = "." + strconv.Itoa(n)
	case suffix != "":
		suffix = "." + suffix
	}
	var all []string
	for _, prefix := range prefixes {
		all = append(all, encode(prefix, withRound(u, 0))+suffix)
	}
	return all
}

func encode(prefix string, u uuid.UUID) string {
	return prefix + ordered.EncodeToString(u[:])
}

// parse parses "prefix_bits" and "prefix_bits.round". The bits are those of a UUIDv7 whose
// rand_a is zero.
func parse(s string) (u uuid.UUID, round int, ok bool) {
	text, number, dotted := strings.Cut(s[strings.LastIndexByte(s, '_')+1:], ".")
	bits, err := ordered.DecodeString(strings.ToLower(text))
	if err != nil || len(bits) != len(u) {
		return u, 0, false
	}
	if dotted {
		if round, err = strconv.Atoi(number); err != nil || round < 1 || strconv.Itoa(round) != number {
			return u, 0, false
		}
	}
	u = uuid.UUID(bits)
	spare := encode("", u) != text // bits in the last character that belong to no byte
	return u, round, !spare && isV7(u) && roundOf(u) == 0
}

func isV7(u uuid.UUID) bool { return u.Version() == 7 && u.Variant() == uuid.RFC4122 }

// roundOf returns the rand_a bits of u.
func roundOf(u uuid.UUID) int { return int(u[6]&0x0f)<<8 | int(u[7]) }

// withRound returns u with n, less than maxRounds, in its rand_a bits.
func withRound(u uuid.UUID, n int) uuid.UUID {
	u[6], u[7] = u[6]&0xf0|byte(n>>8), byte(n)
	return u
}
