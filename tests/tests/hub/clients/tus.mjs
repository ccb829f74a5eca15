// Uploads a file to a hub with tus-js-client, in two sessions: the first one is aborted.
//
// Usage: tus.mjs PACKAGES ADDRESS TOKEN FILE KIND SUBJECT SHA256. Prints the offset at which the
// second session continued, and the size.

import { createReadStream, statSync } from "node:fs";
import { createRequire } from "node:module";

const [packages, address, token, file, kind, subject, sha256] = process.argv.slice(2);
const tus = createRequire(`${packages}/`)("tus-js-client");
const size = statSync(file).size;
const chunk = Math.max(1, Math.floor(size / 5));

// One session. Ends at the first part beyond `stopAt`, or at the end.
function session(uploadUrl, stopAt) {
  return new Promise((resolve, reject) => {
    let first;
    const upload = new tus.Upload(createReadStream(file), {
      endpoint: `${address}/api/v1/uploads`,
      uploadUrl,
      uploadSize: size,
      chunkSize: chunk,
      headers: { Authorization: `Bearer ${token}` },
      metadata: { kind, subject, sha256 },
      retryDelays: [],
      // The client's own error prints the whole state of its connection.
      onError: (error) => reject(new Error(error.message)),
      onChunkComplete: (length, accepted) => {
        first ??= accepted - length;
        if (accepted >= stopAt && accepted < size) {
          upload.abort().then(() => resolve({ url: upload.url, first }), reject);
        }
      },
      onSuccess: () => resolve({ url: upload.url, first }),
    });
    upload.start();
  });
}

const { url } = await session(null, size / 2);
const { first } = await session(url, size);
if (!(first > 0 && first < size)) {
  throw new Error(`the second session began at ${first}`);
}
console.log(`${first} ${size}`);
