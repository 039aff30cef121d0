// Package id makes identifiers that nobody can guess, and shows them as UUIDs
// where other systems expect that.
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

// New returns prefix followed by 26 characters of [a-z2-7]: 128 random bits.
func New(prefix string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return prefix + strings.ToLower(random.EncodeToString(b[:]))
}

// NewOrdered returns prefix followed by 26 characters of [0-9a-v], which sort by
// the millisecond in which they were made. They are the 128 bits of a UUIDv7 (RFC
// 9562, section 5.7) with 62 random bits. The 12 bits that the RFC calls rand_a
// are zero: [UUID] puts the number of a run's round there.
//
// Rows with such ids are stored beside those that came just before them: a store
// that keeps its rows in order writes to few of its pages.
func NewOrdered(prefix string) string {
	var b uuid.UUID
	_, _ = rand.Read(b[8:])
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(time.Now().UnixMilli()))
	copy(b[:6], at[2:])
	b[6] = 0x70             // version 7
	b[8] = b[8]&0x3f | 0x80 // the variant of the RFC
	return prefix + strings.ToLower(ordered.EncodeToString(b[:]))
}

var (
	random  = base32.StdEncoding.WithPadding(base32.NoPadding)
	ordered = base32.HexEncoding.WithPadding(base32.NoPadding) // its characters sort as the bits they encode
)

// rounds is the first number of a round that does not fit into a UUID.
const rounds = 1 << 12

// UUID returns an identifier that [NewOrdered] made as a UUID, without its prefix.
// If a dot and the number of a round follow, as in "run_….2", the UUID is that of
// the round's request. A number that does not fit stays behind a dot: one from
// 4096, and any behind an id of release 0.1, all of whose bits are random. Other
// text is returned as it is.
func UUID(s string) string {
	u, round, ok := parse(s)
	switch {
	case !ok:
		return s
	case round == 0:
		return u.String()
	case !numbered(u) || roundOf(u) != 0 || round >= rounds:
		return u.String() + "." + strconv.Itoa(round)
	}
	return withRound(u, round).String()
}

// Shown returns all identifiers with one of the prefixes that [UUID] shows as the
// given text. If the text is no UUID, it is the only one.
func Shown(text string, prefixes ...string) []string {
	plain, suffix, _ := strings.Cut(text, ".")
	u, err := uuid.Parse(plain)
	if err != nil || len(plain) != 36 {
		return []string{text}
	}
	if suffix != "" {
		suffix = "." + suffix
	}
	var all []string
	for _, prefix := range prefixes {
		all = append(all, encode(prefix, u)+suffix)
		if n := roundOf(u); n > 0 && numbered(u) && suffix == "" {
			all = append(all, encode(prefix, withRound(u, 0))+"."+strconv.Itoa(n))
		}
	}
	return all
}

func encode(prefix string, u uuid.UUID) string {
	return prefix + strings.ToLower(ordered.EncodeToString(u[:]))
}

// parse reads "prefix_bits" and "prefix_bits.round".
func parse(s string) (u uuid.UUID, round int, ok bool) {
	text, number, dotted := strings.Cut(s[strings.LastIndexByte(s, '_')+1:], ".")
	bits, err := ordered.DecodeString(strings.ToUpper(text))
	if err != nil || len(bits) != len(u) {
		return u, 0, false
	}
	if dotted {
		if round, err = strconv.Atoi(number); err != nil || round < 1 || strconv.Itoa(round) != number {
			return u, 0, false
		}
	}
	u = uuid.UUID(bits)
	return u, round, encode("", u) == text // the spare bits of the last character are zero
}

// numbered reports whether the UUID has room for the number of a round.
func numbered(u uuid.UUID) bool { return u.Version() == 7 && u.Variant() == uuid.RFC4122 }

func roundOf(u uuid.UUID) int { return int(u[6]&0x0f)<<8 | int(u[7]) }

func withRound(u uuid.UUID, n int) uuid.UUID {
	u[6], u[7] = u[6]&0xf0|byte(n>>8), byte(n)
	return u
}
