package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"strconv"

	"email-gateway/scripts/sessim"
)

func configure(args []string, getenv func(string) string) (cfg sessim.Config, addr string, healthcheck bool, err error) {
	flags := flag.NewFlagSet("ses-sim", flag.ContinueOnError)
	flags.IntVar(&cfg.LedgerEntries, "ledger-entries", 200_000, "requests to remember")
	flags.IntVar(&cfg.InboxMails, "inbox-mails", 10_000, "full mails to keep")
	flags.Int64Var(&cfg.InboxBytes, "inbox-bytes", 256<<20, "bytes of full mails to keep")
	flags.BoolVar(&healthcheck, "healthcheck", false, "ask the simulator at SES_SIM_ADDR for a sign of life and exit")
	if err := flags.Parse(args); err != nil {
		return cfg, "", false, err
	}
	if cfg.LedgerEntries < 1 || cfg.InboxMails < 1 || cfg.InboxBytes < 1 {
		return cfg, "", false, errors.New("flags: ledger-entries, inbox-mails and inbox-bytes must be at least 1")
	}
	if text := getenv("SES_SIM_MAX_SEND_RATE"); text != "" {
		cfg.MaxSendRate, err = strconv.ParseFloat(text, 64)
		if err != nil || !(cfg.MaxSendRate > 0) || math.IsInf(cfg.MaxSendRate, 0) {
			return cfg, "", false, fmt.Errorf("SES_SIM_MAX_SEND_RATE: %q is not a positive number", text)
		}
	}
	if addr = getenv("SES_SIM_ADDR"); addr == "" {
		addr = "127.0.0.1:8005"
	}
	return cfg, addr, healthcheck, nil
}

// publication returns the configuration of events from the environment.
func publication(getenv func(string) string, addr string) sessim.Publication {
	p := sessim.Publication{
		URL: getenv("SES_SIM_EVENTS_URL"), TopicARN: getenv("SES_SIM_EVENTS_TOPIC"),
		BaseURL: getenv("SES_SIM_EVENTS_BASE_URL"), SignatureVersion: getenv("SES_SIM_EVENTS_SIGNATURE"),
	}
	if p.BaseURL == "" {
		p.BaseURL = "http://" + addr
	}
	return p
}
