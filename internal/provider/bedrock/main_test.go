package bedrock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recordings(t testing.TB) []providertest.Recording {
	t.Helper()
	return providertest.Recordings(t, "bedrock-converse")
}

// encode writes a request.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	t := translate(req)
	return t.Write(t.request)
}
