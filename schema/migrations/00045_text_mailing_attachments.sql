-- Attachments of mailings without html, and of mailings that send nothing.
--
-- The trigger of 00043_attachments.sql dropped the attachments of a mailing when its html was blanked. A mailing with
-- text alone has no html from the start, so its attachments, their files and their share of the quota were kept for ever.

-- +goose Up

SET LOCAL lock_timeout = '3s'; -- a backup may use mailings for hours

DROP TRIGGER mailings_erase_attachments ON mailings;
CREATE TRIGGER mailings_erase_attachments AFTER UPDATE OF html, text_body ON mailings
    FOR EACH ROW WHEN (OLD.attachments IS NOT NULL AND (OLD.html <> '' OR OLD.text_body IS NOT NULL) AND NEW.html = '' AND NEW.text_body IS NULL)
    EXECUTE FUNCTION email_gateway_drop_attachments();

-- What was left before: the content of these mailings is erased, or they never had anything to send. A mailing is found by
-- primary key.
DELETE FROM attachments a USING mailings m WHERE m.id = a.owner_id AND m.company_id = a.company_id AND m.html = '' AND m.text_body IS NULL;

-- +goose Down

SET LOCAL lock_timeout = '3s';
DROP TRIGGER mailings_erase_attachments ON mailings;
CREATE TRIGGER mailings_erase_attachments AFTER UPDATE OF html ON mailings
    FOR EACH ROW WHEN (OLD.attachments IS NOT NULL AND OLD.html <> '' AND NEW.html = '') EXECUTE FUNCTION email_gateway_drop_attachments();
