package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Hash stands for a row and for all rows before it. The zero Hash comes before
// the first row.
type Hash [sha256.Size]byte

// String returns the hash in hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads what [Hash.String] returns.
func ParseHash(s string) (Hash, error) {
	var h Hash
	data, err := hex.DecodeString(s)
	if err != nil || len(data) != len(h) {
		return h, fmt.Errorf("a hash is %d hexadecimal digits", 2*len(h))
	}
	return Hash(data), nil
}

// rowDomain keeps a row's hash from being that of anything else.
const rowDomain = "turnpike audit row v1\n"

// Follow returns the row of the entry behind the row with the number and the
// hash; 0 and the zero Hash begin a chain.
func Follow(org string, number int64, hash Hash, e Entry) (Row, error) {
	body, err := e.body()
	if err != nil {
		return Row{}, err
	}
	r := Row{
		Org: org, Number: number + 1, Kind: e.Kind, At: e.At, Principal: e.Principal,
		RunID: e.RunID, RequestID: e.RequestID, Body: body,
	}
	r.Hash = r.after(hash)
	return r, nil
}

// body returns the body as it is stored. One that is JSON already is not looked
// at again.
func (e Entry) body() (json.RawMessage, error) {
	if raw, ok := e.Body.(json.RawMessage); ok {
		return raw, nil
	}
	body, err := json.Marshal(e.Body)
	if err != nil {
		return nil, fmt.Errorf("audit entry %s: %w", e.Kind, err)
	}
	return body, nil
}

// Encoded returns the entry with its body as it is stored, so that [Follow] need
// not make it.
func (e Entry) Encoded() (Entry, error) {
	body, err := e.body()
	e.Body = body
	return e, err
}

// after returns the hash that the row must have behind one with the given hash.
// Of the body only its hash goes in: a body that has to be erased one day leaves
// a chain that can be checked.
func (r Row) after(before Hash) Hash {
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
