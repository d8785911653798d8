// Package sql holds the statements that read or write many rows at once. Each is an embedded file of this folder: see README.md.
package sql

import _ "embed" // the files

//go:generate go test -count=1 -run ^TestStatementFiles_AreGenerated$ ../dispatch ../encryption ../event ../feedback ../file ../lane ../mailing ../outbox ../recipient ../reputation ../webhook -update

// Accept inserts a group of emails and their idempotency keys.
//
//go:embed accept.sql
var Accept string

// AcceptRecipients inserts the outbox rows of a request's recipients and its idempotency key, or
// nothing if the key exists.
//
//go:embed accept_recipients.sql
var AcceptRecipients string

// AcceptScheduled is Accept for a group with scheduled emails. It also inserts their logs.
//
//go:embed accept_scheduled.sql
var AcceptScheduled string

// AddSends adds sent emails to the minutes of a company.
//
//go:embed add_sends.sql
var AddSends string

// Advance moves a group of emails. An email whose outbox row another transaction has
// locked does not move and comes back as locked. Any other lock that is not granted in time
// ends the statement, and the group is written again. See sql/advance.sql for what it
// reads, locks and writes.
//
//go:embed advance.sql
var Advance string

// AdvancePlain is Advance for groups that need less of it, see plain in package outbox. EXECUTE with an id that no
// email has, 1,500 times on a busy machine, took Postgres 1.3 to 1.5 ms of processor time each with Advance, and 0.7 to
// 0.9 with this one.
//
//go:embed advance_plain.sql
var AdvancePlain string

// AdvanceWaiting is Advance for a single caller: it waits for locked outbox rows too.
//
//go:embed advance_waiting.sql
var AdvanceWaiting string

// AppendFeedback adds the events of notifications to the timelines of emails that are SENT.
//
//go:embed append_feedback.sql
var AppendFeedback string

// Expand takes one step of a mailing's expansion.
//
//go:embed expand.sql
var Expand string

// FeedEvents reads events that rows of the feed name.
//
//go:embed feed_events.sql
var FeedEvents string

// InsertDeliveries inserts deliveries of a webhook endpoint that have no row.
//
//go:embed insert_deliveries.sql
var InsertDeliveries string

// InsertDoubtfulEntries inserts entries whose addresses the mailing may have already. What is left out
// becomes a reject.
//
//go:embed insert_doubtful_entries.sql
var InsertDoubtfulEntries string

// InsertRejects inserts lines that are not entries.
//
//go:embed insert_rejects.sql
var InsertRejects string

// KnownRecipients finds those of the ids that are recipients of the company, or about to be.
//
//go:embed known_recipients.sql
var KnownRecipients string

// LeaseJobs takes due bulk jobs of lanes for some seconds.
//
//go:embed lease_jobs.sql
var LeaseJobs string

// LinkFiles inserts the attachments of new emails or mailings.
//
//go:embed link_files.sql
var LinkFiles string

// Load reads emails for their attempts.
//
//go:embed load.sql
var Load string

// MarkDelivered makes failed deliveries of events that a replay has delivered DELIVERED.
//
//go:embed mark_delivered.sql
var MarkDelivered string

// NamedLanes finds the first rows of lanes.
//
//go:embed named_lanes.sql
var NamedLanes string

// ReadFeedback reads the emails that notifications of the provider are about.
//
//go:embed read_feedback.sql
var ReadFeedback string

// ReencryptEmails updates the rows of email_outbox that still have the value that was read, and locks them by primary key.
//
//go:embed reencrypt_emails.sql
var ReencryptEmails string

// ReencryptEntries updates the rows of mailing_entries that still have the value that was read, and locks them by primary key.
//
//go:embed reencrypt_entries.sql
var ReencryptEntries string

// ReencryptRecipients updates the rows of recipients that still have the value that was read, and locks them by primary key.
//
//go:embed reencrypt_recipients.sql
var ReencryptRecipients string

// Release returns rows to the outbox that are still as the batch left them.
//
//go:embed release.sql
var Release string

// SetReputationDefaults sets the defaults of the reputation guard.
//
//go:embed set_reputation_defaults.sql
var SetReputationDefaults string

// SizeFiles writes the sizes of files that are not known.
//
//go:embed size_files.sql
var SizeFiles string

// TakeDue takes due emails of lanes.
//
//go:embed take_due.sql
var TakeDue string

// TakeFeedback inserts a notification of the provider and locks its email.
//
//go:embed take_feedback.sql
var TakeFeedback string

// TakeFreeFeedback is TakeFeedback for a group. It leaves out the notifications whose emails another transaction has
// locked.
//
//go:embed take_free_feedback.sql
var TakeFreeFeedback string

// TakeKeys takes the keys of the aggregates of a batch's emails.
//
//go:embed take_keys.sql
var TakeKeys string

// UpdateDeliveries writes the new state of attempted deliveries of a webhook endpoint.
//
//go:embed update_deliveries.sql
var UpdateDeliveries string

// UpsertFreeRecipients is UpsertRecipients without the imports whose outbox row or recipient another
// transaction has locked. A recipient that another transaction is inserting is still waited for.
//
//go:embed upsert_free_recipients.sql
var UpsertFreeRecipients string

// UpsertRecipients merges imports into recipients.
//
//go:embed upsert_recipients.sql
var UpsertRecipients string

// WakeLanes notifies the dispatchers of lanes.
//
//go:embed wake_lanes.sql
var WakeLanes string

// WithEvents finds the companies that have events after a position.
//
//go:embed with_events.sql
var WithEvents string
