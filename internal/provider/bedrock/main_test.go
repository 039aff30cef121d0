package bedrock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recordings(t testing.TB) []providertest.Recording {
	t.Helper()
	return providertest.Recordings(t, "bedrock-converse")
}
