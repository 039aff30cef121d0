package proc

import "errors"

// Group owns processes. The zero value is empty and ready; it is not safe for
// concurrent use.
type Group struct {
	procs []*Process
}

// Start starts a process that [Group.Stop] will stop.
func (g *Group) Start(c Command) (*Process, error) {
	p, err := Start(c)
	if err == nil {
		g.procs = append(g.procs, p)
	}
	return p, err
}

// Stop stops all processes, the last started first, and waits for them. It may
// be called again, also after more were started.
func (g *Group) Stop() error {
	var errs []error
	for i := len(g.procs) - 1; i >= 0; i-- {
		errs = append(errs, g.procs[i].Stop())
	}
	g.procs = nil
	return errors.Join(errs...)
}
