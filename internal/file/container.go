package file

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// ContainerPrefix begins the ids of containers.
const ContainerPrefix = "cntr_"

// runPrefix begins the ids of runs.
const runPrefix = "run_"

// hashBytes is the size of the hash in the id of a container of a session that is not a run.
const hashBytes = 16

// ContainerOf returns the id of the container of a session of code: its working directory and its variables. The session is
// named as in its org: a run, or what several runs share. The container of a run has the id of the run with another prefix.
func ContainerOf(session string) string {
	if suffix, is := strings.CutPrefix(session, runPrefix); is {
		return ContainerPrefix + suffix
	}
	sum := sha256.Sum256([]byte(session))
	return ContainerPrefix + hex.EncodeToString(sum[:hashBytes])
}

// RunOfContainer returns the run whose own session of code has the container with the id. It returns false for the container
// of another session.
func RunOfContainer(id string) (runID string, ok bool) {
	suffix, ok := strings.CutPrefix(id, ContainerPrefix)
	if b, err := hex.DecodeString(suffix); !ok || suffix == "" || err == nil && len(b) == hashBytes {
		return "", false
	}
	return runPrefix + suffix, true
}
