package mcpserver_test

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestMain(m *testing.M) { apptest.Main(m) }
