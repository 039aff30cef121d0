package spelling

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	known := []string{"get-sum", "Echo", "print_env", strings.Repeat("x", 65)}
	for name, want := range map[string]string{
		"get_sum": "get-sum", "getsum": "get-sum", "GET-SUM": "get-sum", "echo": "Echo", "ehco": "Echo", "printenv": "print_env",
		"": "", "delete_all": "", strings.Repeat("x", 64): "", strings.Repeat("x", 65): "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}
