package clock

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSteadyAdvancesFromItsOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := time.UnixMilli(1_700_000_000_000)
		s := NewSteady(origin)
		for range 3 {
			if got := s.Now(); !got.Equal(origin) {
				t.Errorf("got %v, want %v", got, origin)
			}
			time.Sleep(90 * time.Minute)
			origin = origin.Add(90 * time.Minute)
		}
	})
}

func TestSteadyIgnoresTheMonotonicReadingOfItsOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Now().Add(time.Hour) // both readings are an hour ahead
		s := NewSteady(ahead)
		time.Sleep(time.Second)
		if got, want := s.Now().UnixMilli(), ahead.UnixMilli()+1000; got != want {
			t.Errorf("got %d, want %d", got, want)
		}
	})
}

func TestTheWallClockHasNoMonotonicReading(t *testing.T) {
	now := Wall()
	if strings.Contains(now.String(), " m=") {
		t.Errorf("%v has a monotonic reading", now)
	}
	if d := time.Since(now); d < 0 || d > time.Minute {
		t.Errorf("%v is %v away from now", now, d)
	}
}
