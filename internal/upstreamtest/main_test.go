package upstreamtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) {
	turnpiketest.UpdateFlag()
	goleak.VerifyTestMain(m)
}
