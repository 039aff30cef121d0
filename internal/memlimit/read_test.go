package memlimit

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/turnpike-gateway/turnpike/tool"
)

func TestReadAllReadsToTheEndAndChargesItsBuffer(t *testing.T) {
	for _, length := range []int{0, 1, firstRead, firstRead + slack, firstRead + slack + 1, 100 << 10, 3 << 20} {
		for _, announced := range []int64{-1, 0, int64(length), 1 << 40} {
			want := bytes.Repeat([]byte("x"), length)
			b := New(Options{}).Open("b")
			lent, err := ReadLent(iotest.HalfReader(bytes.NewReader(want)), announced, b)
			if err != nil || !bytes.Equal(lent, want) || b.Used() != int64(cap(lent)) || cap(lent) > max(8*length, lentSizes[0]) {
				t.Errorf("lent: %d bytes of %d: %d bytes, %v, charged %d for %d", length, announced, len(lent), err, b.Used(), cap(lent))
			}
			Return(lent) // the next one may get it
			a := New(Options{}).Open("a")
			got, err := ReadAll(iotest.HalfReader(bytes.NewReader(want)), announced, a)
			if err != nil || !bytes.Equal(got, want) || a.Used() != int64(cap(got)) {
				t.Errorf("%d bytes of %d: %d bytes, %v, charged %d for %d", length, announced, len(got), err, a.Used(), cap(got))
			}
			if announced == int64(length) && cap(got) > length+firstRead+slack {
				t.Errorf("%d bytes are in a buffer of %d", length, cap(got))
			}
		}
	}
}

// An announced length charges nothing. // P40
func TestABufferGrowsWithWhatArrives(t *testing.T) {
	for _, read := range []func(io.Reader, int64, tool.Memory) ([]byte, error){ReadAll, ReadLent} {
		a := New(Options{}).Open("a")
		most := func(arrived int64) int64 {
			if arrived < firstRead {
				return int64(lentSizes[0])
			}
			return 5*arrived + secondRead + 2*int64(lentSizes[0])
		}
		r := &watched{each: 1000, left: 2 << 20}
		r.look = func() {
			if a.Used() > most(r.arrived) {
				t.Fatalf("%d bytes are charged for %d", a.Used(), r.arrived)
			}
		}
		if got, err := read(r, 10<<20, a); err != nil || len(got) != 2<<20 {
			t.Error(len(got), err)
		}
	}
}

type watched struct {
	each, left, arrived int64
	look                func()
}

func (w *watched) Read(p []byte) (int, error) {
	w.look()
	n := min(int64(len(p)), w.each, w.left)
	w.left, w.arrived = w.left-n, w.arrived+n
	if n == 0 {
		return 0, io.EOF
	}
	return int(n), nil
}

func TestReadAllStopsAtARefusalAndKeepsNothing(t *testing.T) {
	a := New(Options{Run: 1 << 20}).Open("a")
	_, err := ReadAll(strings.NewReader(strings.Repeat("x", 2<<20)), -1, a)
	if refusedBy(t, err) != Run || a.Used() != 0 {
		t.Errorf("%v, %d bytes stay charged", err, a.Used())
	}
	broken := errors.New("broken")
	if _, err := ReadAll(iotest.ErrReader(broken), -1, a); err != broken || a.Used() != 0 {
		t.Errorf("%v, %d bytes stay charged", err, a.Used())
	}
}
