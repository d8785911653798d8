package ctl

import (
	"strings"

	"github.com/spf13/cobra"

	"email-gateway/api/internal/ctl/command"
)

// Commands lists all runnable commands as typed after gatewayctl, without those that cobra
// adds.
func Commands() []string {
	var all []string
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			walk(child)
		}
		if !cmd.HasSubCommands() {
			all = append(all, strings.TrimPrefix(cmd.CommandPath(), "gatewayctl "))
		}
	}
	walk(rootCommand(&command.Invocation{}))
	return all
}
