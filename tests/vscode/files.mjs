/** A server of files on this machine, as a static site is one, that tells what was asked of it. */
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';

/** Serves these files, by path; `log` gets every request, and `pause` may hold an answer back. */
export class Files {
  constructor(files) {
    this.log = [];
    this.pause = async () => {};
    this.server = createServer(async (request, response) => {
      this.log.push(`${request.method} ${request.url}`);
      const file = files[request.url];
      if (request.method !== 'GET' || file === undefined) {
        response.writeHead(404).end();
        return;
      }
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': statSync(file).size });
      await this.pause(response);
      createReadStream(file).on('error', () => response.destroy()).pipe(response);
    });
  }

  /** Listens; gives its origin. */
  async listen(port = 0) {
    await new Promise((resolve, reject) => {
      this.server.on('error', reject).listen(port, '127.0.0.1', resolve);
    });
    return `http://127.0.0.1:${this.server.address().port}`;
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }
}
