// Package ctl implements gatewayctl, the command-line tool for operators and tenants. It has the
// root command, the flags of every command and the exit codes; api/cmd/gatewayctl runs it. Its
// tests run whole commands.
//
// Every command group has a package that is named after it: gatewayctl company quota is in
// ctl/company, in the file quota.go.
//
//   - Operators: audit, breaker, company, dlq, doctor, domain, encryption, key, lane, person and
//     program read and change rows through shared/store and never touch a queue. doctor also
//     calls the api, without a key.
//   - Tenants: events, file, mailing, template, usage and webhook call the HTTP API.
//   - Both: email and suppression.
//
// The commands share these packages:
//
//   - command: the invocation with its environment and global flags, arguments, flags, errors
//   - operator, tenant: how a command runs with the database, and with the HTTP API
//   - role: how a command runs as operator or tenant
//   - output: text and JSON, tables, times, numbers, progress
//   - attachment, timeline: the attachments and the timeline of an email
package ctl
