package audit

import (
	"crypto/ed25519"
	"slices"
)

// Loss is a chain that is shorter than the second place of its checkpoints says.
type Loss struct {
	Org   string
	Has   int64 // the last row that the store has; 0 = it has none
	Hash  Hash  // of that row
	Known int64 // the last row that a checkpoint speaks of
	At    int64 // when that checkpoint was signed, or the loss was accepted; Unix milliseconds
}

// Losses compares the ends of all chains with the checkpoints of the second
// place, in the order in which they were written there. Checkpoints of another
// key count, too: the key may be lost together with the store. Only the mark of
// an accepted loss must be signed with this key.
func Losses(heads []Head, witness []Checkpoint, key ed25519.PublicKey) []Loss {
	ends := map[string]Head{}
	for _, h := range heads {
		ends[h.Org] = h
	}
	known := map[string]Checkpoint{}
	var orgs []string
	for _, c := range witness {
		last, seen := known[c.Org]
		if c.Lost && c.Check(key) == nil || !c.Lost && c.Number > last.Number {
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
			out = append(out, Loss{Org: org, Has: h.Number, Hash: h.Hash, Known: c.Number, At: c.At})
		}
	}
	return out
}

// standing returns the checkpoints of the org that no accepted loss has made
// void, and those losses.
func standing(org string, witness []Checkpoint, key ed25519.PublicKey) (marks []Checkpoint, losses []Loss) {
	for _, c := range witness {
		if c.Org != org {
			continue
		}
		if c.Lost && c.Check(key) == nil {
			loss := Loss{Org: org, Has: c.Number, Hash: c.Hash, At: c.At}
			marks = slices.DeleteFunc(marks, func(m Checkpoint) bool {
				if m.Number <= c.Number {
					return false
				}
				loss.Known = max(loss.Known, m.Number)
				return true
			})
			losses = append(losses, loss)
		}
		marks = append(marks, c)
	}
	return marks, losses
}
