package memlimit

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

const mib = 1 << 20

func refusedBy(t *testing.T, err error) Bound {
	t.Helper()
	var r *Refused
	if err != nil && !errors.As(err, &r) {
		t.Fatalf("%v is not a *Refused", err)
	}
	if r == nil {
		return ""
	}
	return r.Bound
}

// P40
func TestRefusedNamesTheBound(t *testing.T) {
	l := New(Options{Process: 100 * mib})
	a := l.Open("a")
	if err := a.Acquire(DefaultRun + 1); refusedBy(t, err) != Run {
		t.Errorf("more than the limit of a run: %v", err)
	}
	if err := a.Acquire(60 * mib); err != nil {
		t.Error(err)
	}
	if err := a.Acquire(5 * mib); refusedBy(t, err) != Run {
		t.Errorf("more than the limit of a run in two charges: %v", err)
	}
	if err := l.Open("a").Acquire(10 * mib); refusedBy(t, err) != Org {
		t.Errorf("more than two thirds for one org: %v", err)
	}
	b := l.Open("b")
	if err := b.Acquire(20 * mib); err != nil {
		t.Errorf("another org is refused: %v", err)
	}
	if err := b.Acquire(21 * mib); refusedBy(t, err) != Process {
		t.Errorf("more than the process has: %v", err)
	}
	a.Close()
	b.Close()
	if l.Held() != 0 || l.HeldBy("a") != 0 {
		t.Errorf("%d bytes are still held", l.Held())
	}
}

func TestRefusedUnwrapsToAFaultForTheCaller(t *testing.T) {
	for bound, want := range map[Bound]fault.Code{Run: fault.TooLarge, Org: fault.Limited, Process: fault.Unavailable} {
		f := fault.From(&Refused{Bound: bound, Bytes: mib, Held: 3, Limit: 64 * mib})
		if f.Code != want || (f.RetryAfter == 0) != (bound == Run) {
			t.Errorf("%s: %+v", bound, f)
		}
	}
}

func TestARefusedChargeCountsNothing(t *testing.T) {
	l := New(Options{Process: 10 * mib})
	a := l.Open("a")
	defer a.Close()
	_ = a.Acquire(8 * mib)
	if a.Used() != 0 || l.Held() != 0 {
		t.Errorf("the account has %d bytes, the limiter %d", a.Used(), l.Held())
	}
}

// One org leaves at least a third of the process's bytes to others.
func TestOneOrgAloneGetsTwoThirdsOfTheBytes(t *testing.T) {
	l := New(Options{Process: 90 * mib})
	n := 0
	for l.Open("greedy").Acquire(mib) == nil {
		n++
	}
	if n != 60 {
		t.Errorf("one org alone holds %d MiB of 90, want 60", n)
	}
	if err := l.Open("other").Acquire(10 * mib); err != nil {
		t.Error(err)
	}
}

// Small charges do not acquire the lock of the limiter.
func TestSmallChargesUseTheReserve(t *testing.T) {
	l := New(Options{})
	a := l.Open("a")
	defer a.Close()
	for range 8 {
		if err := a.Acquire(1 << 10); err != nil {
			t.Fatal(err)
		}
	}
	if l.Held() != chunk {
		t.Errorf("%d bytes are reserved for %d", l.Held(), a.Used())
	}
	if err := a.Acquire(mib); err != nil {
		t.Fatal(err)
	}
	a.Release(mib)
	if l.Held() > maxSpare+2*chunk {
		t.Errorf("%d bytes stay reserved for %d", l.Held(), a.Used())
	}
}

func TestAnAccountIsReleasedByItsLastHolder(t *testing.T) {
	l := New(Options{})
	a := l.Open("a")
	b := a.Retain()
	_ = a.Acquire(mib)
	a.Close()
	if b.Used() != mib {
		t.Errorf("%d bytes are charged after the first Close, want %d", b.Used(), mib)
	}
	b.Close()
	if err := b.Acquire(1); refusedBy(t, err) != Run || l.Held() != 0 {
		t.Errorf("Charge of a closed account: %v, %d bytes held", err, l.Held())
	}
}

func TestAPartReleasesWhatItHasCharged(t *testing.T) {
	l := New(Options{})
	a := l.Open("a")
	_ = a.Acquire(100)
	p := a.Share()
	_ = p.Acquire(mib)
	p.Release(2 * mib)
	_ = p.Acquire(mib)
	p.Close()
	p.Close()
	if a.Used() != 100 || p.Acquire(1) == nil {
		t.Errorf("the account has %d bytes", a.Used())
	}
	a.Close()
}

func TestNilLedgerCountsNothing(t *testing.T) {
	var l *Limiter
	a := l.Open("a")
	p := a.Share()
	if a.Acquire(1) != nil || p.Acquire(1) != nil || a.Used() != 0 {
		t.Error("a nil account counts bytes")
	}
	a.Add(1)
	a.Release(1)
	p.Close()
	a.Retain().Close()
	a.Close()
}

func TestConcurrentAccountsAddUp(t *testing.T) {
	l := New(Options{Process: 8 * mib})
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			chance := rand.New(rand.NewPCG(uint64(i), 1)) //nolint:gosec // a test
			for range 200 {
				a := l.Open([]string{"a", "b"}[i%2])
				p := a.Share()
				for range 20 {
					n := chance.IntN(100 << 10)
					if a.Acquire(n) == nil && chance.IntN(2) == 0 {
						a.Release(n)
					}
					_ = p.Acquire(chance.IntN(chunk))
				}
				if l.Held() > 8*mib {
					t.Errorf("%d bytes are held", l.Held())
				}
				p.Close()
				a.Close()
			}
		})
	}
	all.Wait()
	if l.Held() != 0 || len(l.orgs) != 0 {
		t.Errorf("%d bytes are still held, by %v", l.Held(), l.orgs)
	}
}

func BenchmarkChargeOfASmallBody(b *testing.B) {
	l := New(Options{})
	b.ReportAllocs()
	for range b.N {
		a := l.Open("a")
		_ = a.Acquire(4 << 10)
		a.Close()
	}
}
