package app

import (
	"context"
	"path/filepath"

	builtins "github.com/turnpike-gateway/turnpike/internal/builtin/make"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

// buildBuiltins builds what makes the built-in tools. The program is that of [Options].
func (a *App) buildBuiltins(program []string, router *route.Router) (err error) {
	program = program[:min(len(program), 1)]
	a.databases = databases{sqltool.NewConnections(sqltool.ConnectionOptions{
		Dial: a.out.DialGuarded, OperatorDial: a.out.DialOperator, Own: sqltool.OwnFiles(a.config.Data), Program: program, Log: a.log,
	}), a.vault.orgSecret, a.log}
	a.atClose(a.databases.Close)
	o := builtins.Options{
		Runtime: func(orgID string) org.Runtime { return a.directory.Runtime(orgID) },
		Secret:  a.vault.orgSecret, Client: a.out.Guarded(egress.GuardedOptions{}),
		Databases: a.databases.Connections, Buckets: a.buckets, Link: a.buckets.link, Files: a.files, Sessions: a.store,
		RunsCode: a.config.Sandbox.Runs(), Shell: a.config.Sandbox.Shell, Log: a.log,
		Check: func(ctx context.Context, url string) error {
			_, err := a.out.Resolve(ctx, url)
			return err
		},
		Vision: builtins.Vision{
			Resolve: router.Resolve, MaxRoundsCap: a.live.maxRoundsCap,
			Caller: func(orgID, principal string) (caller.Caller, bool) { return a.directory.Caller(orgID, principal) },
		},
	}
	if len(program) > 0 { // else PDFs are not read: the program cannot start itself
		if o.PDF, err = pdf.New(pdf.Options{Program: program, Cache: filepath.Join(a.config.Data, PDFDirectory)}); err != nil {
			return err
		}
	}
	a.builtins = builtins.New(o)
	a.atClose(a.builtins.Close)
	return nil
}
