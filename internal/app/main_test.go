package app_test

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

func TestMain(m *testing.M) { apptest.Main(m) } // O01
