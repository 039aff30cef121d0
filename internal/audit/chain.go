package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Hash is the chain hash of a row. It covers the row and every row before it. The
// zero Hash is the predecessor of the first row.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash parses the output of [Hash.String].
func ParseHash(s string) (Hash, error) {
	var h Hash
	data, err := hex.DecodeString(s)
	if err != nil || len(data) != len(h) {
		return h, fmt.Errorf("a hash must be %d hexadecimal digits", 2*len(h))
	}
	return Hash(data), nil
}

// rowDomain separates row hashes from hashes of other data. It is part of the
// stored format.
const rowDomain = "turnpike audit row v1\n"

// NextRow returns the row for e after the row with the given number and hash. Number
// 0 and the zero Hash start a chain.
func NextRow(org string, number int64, hash Hash, e Entry) (Row, error) {
	body, err := e.body()
	if err != nil {
		return Row{}, err
	}
	r := Row{
		Org: org, Number: number + 1, Kind: e.Kind, At: e.At, Principal: e.Principal,
		RunID: e.RunID, RequestID: e.RequestID, Body: body,
	}
	r.Hash = r.chainHash(hash)
	return r, nil
}

// body returns the stored form of the body. A json.RawMessage is returned
// unchanged and unchecked.
func (e Entry) body() (json.RawMessage, error) {
	var body json.RawMessage
	var err error
	switch b := e.Body.(type) {
	case json.RawMessage:
		return b, nil
	case Request:
		body, err = b.appendJSON(make([]byte, 0, bodyBytes))
	default:
		body, err = json.Marshal(e.Body)
	}
	if err != nil {
		return nil, fmt.Errorf("audit entry %s: %w", e.Kind, err)
	}
	return body, nil
}

// Encoded returns the entry with its body in stored form, so that [NextRow] does not
// have to marshal it.
func (e Entry) Encoded() (Entry, error) {
	body, err := e.body()
	if _, encoded := e.Body.(json.RawMessage); !encoded {
		e.typed = e.Body
	}
	e.Body = body
	return e, err
}

// chainHash returns the hash of the row, given the hash of the previous row. It covers
// only the hash of the body, so a body can be erased without breaking the chain.
func (r Row) chainHash(before Hash) Hash {
	body := sha256.Sum256(r.Body)
	msg := make([]byte, 0, 512)
	msg = append(msg, rowDomain...)
	msg = append(msg, before[:]...)
	msg = binary.BigEndian.AppendUint64(msg, uint64(r.Number))
	msg = binary.BigEndian.AppendUint64(msg, uint64(r.At))
	for _, text := range []string{r.Org, string(r.Kind), r.Principal, r.RunID, r.RequestID} {
		msg = binary.BigEndian.AppendUint64(msg, uint64(len(text)))
		msg = append(msg, text...)
	}
	msg = append(msg, body[:]...)
	return sha256.Sum256(msg)
}
