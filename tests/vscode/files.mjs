/** A file server on this machine, as for a static site, which logs the requests. */
import { createReadStream, statSync } from 'node:fs';
import { createServer } from 'node:http';

/** Serves these files by path. `log` gets every request, and `pause` may delay a response. */
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

  /** Listens, and returns the origin. */
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
