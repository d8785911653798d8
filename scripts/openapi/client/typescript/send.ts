// Sends one email with the client that openapi-typescript makes of openapi.yaml, and shows it.
import createClient from 'openapi-fetch'
import type { paths } from './gateway.js'

declare const process: { argv: string[] }
const [, , baseUrl, key] = process.argv
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } })

const sent = await client.POST('/v1/email/send', {
  body: { to: 'ana@example.com', subject: 'Sua fatura', html: '<p>Olá, Ana.</p>', recipient: { externalId: 'TYPESCRIPT' } },
})
if (!sent.data) throw new Error(JSON.stringify(sent.error))

const shown = await client.GET('/v1/email/{id}', { params: { path: { id: sent.data.outboxId } } })
if (!shown.data) throw new Error(JSON.stringify(shown.error))
console.log(shown.data.outboxId)

const refused = await client.POST('/v1/email/send', {
  body: { to: 'ana', subject: 'Sua fatura', html: '<p>Olá, Ana.</p>', recipient: { externalId: 'TYPESCRIPT' } },
})
if (refused.error?.code !== 'VALIDATION_FAILED' || refused.error.errors?.[0]?.field !== 'to') throw new Error('a wrong address was not refused')
