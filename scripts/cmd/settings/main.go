// Command settings generates the table of CONFIGURATION.md from the structs into which the programs
// read their environment:
//
//	go run ./scripts/cmd/settings           in the checkout's folder
//	go run ./scripts/cmd/settings -check    checks whether it is up to date, and writes nothing
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"email-gateway/scripts/settings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "settings:", err)
		}
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("settings", flag.ContinueOnError)
	root := flags.String("root", ".", "folder of the checkout")
	check := flags.Bool("check", false, "write nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	programs, err := settings.Programs(*root)
	if err != nil {
		return err
	}
	path := filepath.Join(*root, "CONFIGURATION.md")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	made, err := settings.Insert(string(text), settings.Table(programs))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if made == string(text) {
		return nil
	}
	if *check {
		return fmt.Errorf("%s: the configuration table is out of date: go run ./scripts/cmd/settings", path)
	}
	return os.WriteFile(path, []byte(made), 0o644)
}
