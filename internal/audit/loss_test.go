package audit_test

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

func TestLossesComparesChainsWithCheckpoints(t *testing.T) {
	at := func(number int64) audit.Checkpoint { return audit.Checkpoint{Org: "o", Number: number}.Sign(key()) }
	lost := func(number int64) audit.Checkpoint {
		return audit.Checkpoint{Org: "o", Number: number, LossAccepted: true}.Sign(key())
	}
	forged := func(c audit.Checkpoint) audit.Checkpoint {
		c.Signature = make([]byte, 64)
		return c
	}
	for name, c := range map[string]struct {
		has     int64
		witness []audit.Checkpoint
		known   int64 // 0 = no loss
	}{
		"no checkpoint":                          {5, nil, 0},
		"complete":                               {9, []audit.Checkpoint{at(5), at(9)}, 0},
		"newer than the checkpoints":             {12, []audit.Checkpoint{at(5), at(9)}, 0},
		"an older database":                      {7, []audit.Checkpoint{at(5), at(9)}, 9},
		"an empty database":                      {0, []audit.Checkpoint{at(5), at(9)}, 9},
		"the key was lost too":                   {0, []audit.Checkpoint{forged(at(5))}, 5},
		"rows removed by retention count":        {3, []audit.Checkpoint{{Org: "o", Number: 5, Pruned: true}}, 5},
		"an accepted loss":                       {8, []audit.Checkpoint{at(9), lost(7)}, 0},
		"a second loss":                          {8, []audit.Checkpoint{at(20), lost(7), at(10)}, 10},
		"everything lost, with new rows":         {1, []audit.Checkpoint{at(20), lost(0)}, 0},
		"acceptance with an invalid signature":   {8, []audit.Checkpoint{at(9), forged(lost(7))}, 9},
		"acceptance that is older than the loss": {8, []audit.Checkpoint{lost(7), at(9)}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			losses := audit.Losses([]audit.Head{{Org: "o", Number: c.has}, {Org: "other", Number: 1}}, c.witness, public())
			want := c.known > 0
			if (len(losses) == 1) != want || want && (losses[0].Stored != c.has || losses[0].Signed != c.known) {
				t.Errorf("got %+v, want a loss between %d and %d", losses, c.has, c.known)
			}
		})
	}
}

func TestLossesNamesEachOrg(t *testing.T) {
	losses := audit.Losses(nil, []audit.Checkpoint{{Org: "b", Number: 1}, {Org: "a", Number: 2}, {Org: "b", Number: 3}}, public())
	got := []string{}
	for _, l := range losses {
		got = append(got, l.Org)
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v", got)
	}
}
