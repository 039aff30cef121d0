package app

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func configCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Work with configuration files",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(checkCommand(p))
	return cmd
}

func checkCommand(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE",
		Short: "Say whether a configuration file is right, and if not, every mistake with its place",
		Long: `Read a configuration file and everything that it refers to (environment
variables, secret files) without starting anything. Every mistake is one line:

  turnpike.yaml:17:21: orgs[0].runtime.max_rounds: 51 is out of range (1..50)

The exit status is 0 if the gateway would start with it and 1 if not.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := config.Load(args[0], p.Env)
			if err != nil {
				return err
			}
			if _, err := c.Resolve(cmd.Context(), secret.NewResolver(p.Env)); err != nil {
				return err
			}
			for _, w := range c.Warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is right\n", args[0])
			return nil
		},
	}
}
