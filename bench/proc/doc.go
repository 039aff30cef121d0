// Package proc starts the processes that a benchmark needs and sees to it that
// none of them outlives it: each is stopped by its own process id, whatever way
// the benchmark ends.
//
//	var g proc.Group
//	defer g.Stop()
//	up, err := g.Start(proc.Command{Path: exe, Args: []string{"child", "upstream"}, Log: …})
//	addr, err := up.Line(ctx)
package proc
