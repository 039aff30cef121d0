package audit

import (
	"crypto/ed25519"
	"slices"
)

// Loss is a chain that is shorter than its checkpoints in the witness say.
type Loss struct {
	Org    string
	Stored int64 // number of the last row in the store; 0 = none
	Hash   Hash  // of that row
	Signed int64 // the highest number in a checkpoint
	At     int64 // when that checkpoint was signed, or the loss was accepted; Unix milliseconds
}

// Losses returns the chains that are shorter than the checkpoints of the witness
// say, sorted by org. The checkpoints are in the order in which they were written.
// A checkpoint with an invalid signature counts too, because the key may be lost
// together with the store. An accepted loss counts only if key has signed it.
func Losses(heads []Head, witness []Checkpoint, key ed25519.PublicKey) []Loss {
	ends := map[string]Head{}
	for _, h := range heads {
		ends[h.Org] = h
	}
	known := map[string]Checkpoint{}
	var orgs []string
	for _, c := range witness {
		last, seen := known[c.Org]
		if c.LossAccepted && c.Check(key) == nil || !c.LossAccepted && c.Number > last.Number {
			known[c.Org] = c
		}
		if !seen {
			orgs = append(orgs, c.Org)
		}
	}
	var out []Loss
	slices.Sort(orgs)
	for _, org := range slices.Compact(orgs) {
		if h, c := ends[org], known[org]; c.Number > h.Number {
			out = append(out, Loss{Org: org, Stored: h.Number, Hash: h.Hash, Signed: c.Number, At: c.At})
		}
	}
	return out
}

// validCheckpoints returns the checkpoints of the org that are still valid after the
// accepted losses, and those losses.
func validCheckpoints(org string, witness []Checkpoint, key ed25519.PublicKey) (marks []Checkpoint, losses []Loss) {
	for _, c := range witness {
		if c.Org != org {
			continue
		}
		if c.LossAccepted && c.Check(key) == nil {
			loss := Loss{Org: org, Stored: c.Number, Hash: c.Hash, At: c.At}
			marks = slices.DeleteFunc(marks, func(m Checkpoint) bool {
				if m.Number <= c.Number {
					return false
				}
				loss.Signed = max(loss.Signed, m.Number)
				return true
			})
			losses = append(losses, loss)
		}
		marks = append(marks, c)
	}
	return marks, losses
}
