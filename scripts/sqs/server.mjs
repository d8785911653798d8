// The SQS and SNS of the tests: fauxqs on loopback only, which its own command does not offer. All state is in memory.
import { pathToFileURL } from 'node:url';

const [modules, port] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${modules}/node_modules/fauxqs/dist/${file}`));
const { buildApp } = await load('app.js');
const { SqsStore } = await load('sqs/sqsStore.js');
const sqsStore = new SqsStore();
sqsStore.host = undefined; // the URL of a queue begins with the address that the client used
await buildApp({ logger: false, stores: { sqsStore } }).listen({ host: '127.0.0.1', port: Number(port) });
