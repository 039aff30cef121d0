//go:build !linux

package child

import "errors"

func launch(string, []string) error { return errors.New("it needs Linux") }
