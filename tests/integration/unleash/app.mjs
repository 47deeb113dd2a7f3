// An application that follows a flag by Unleash's own client, with an interface that stops and starts its work.
//
//     node app.mjs PORT UNLEASH_URL CLIENT_TOKEN DEFAULT_TOPIC FOLDER
//
// It takes its topic from the flag's variant when its work starts. While it knows nothing of the flag, that is
// DEFAULT_TOPIC, as it stands in its code. A stop takes effect after the batch in hand.

import http from 'node:http';
import { createRequire } from 'node:module';

const [port, url, token, otherwise, folder] = process.argv.slice(2);
const { initialize } = createRequire(`${process.env.UNLEASH_MODULES}/`)('unleash-client');
const BATCH_MS = 300;

const unleash = initialize({
  url: `${url}/api/`,
  appName: 'checkout',
  customHeaders: { Authorization: token },
  refreshInterval: 200,
  disableMetrics: true,
  backupPath: folder,
});
unleash.on('error', () => {});
unleash.on('warn', () => {});

const wanted = () => {
  const variant = unleash.getVariant('payments-topic');
  return variant.enabled && variant.payload ? variant.payload.value : otherwise;
};

let topic = wanted();
let state = 'running';

const told = (run) => {
  if (run && state === 'stopped') {
    topic = wanted();
    state = 'running';
  } else if (!run && state === 'running') {
    state = 'stopping';
    setTimeout(() => { state = 'stopped'; }, BATCH_MS);
  }
};

http
  .createServer((request, response) => {
    let text = '';
    request.on('data', (part) => { text += part; });
    request.on('end', () => {
      if (request.method === 'PUT' && request.url === '/admin/run') told(JSON.parse(text).run);
      const shown = { state, topic: state === 'stopped' ? wanted() : topic };
      response.writeHead(200, { 'Content-Type': 'application/json' });
      response.end(JSON.stringify(shown));
    });
  })
  .listen(Number(port), '127.0.0.1');
