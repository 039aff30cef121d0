//go:build race

package memlimit

// poison says that buffers which are returned are filled: who still reads one gets wrong bytes.
const poison = true
