/** Search in a worker with a time limit, so that no pattern can stop the page. */

import type { FunctionName } from './model';
import { compile, matching } from './search';

/** The longest search in milliseconds. */
const LIMIT = 3000;

/** The part of a worker that a search uses. */
export interface SearchWorker {
  postMessage(message: unknown): void;
  terminate(): void;
}

/** Starts a worker with a code. `receive` gets its messages. */
export type StartWorker = (code: string, receive: (message: unknown) => void) => SearchWorker;

/** The code of the worker. Both functions are without references to others. */
function code(): string {
  return `const compile = ${compile.toString()};
const matching = ${matching.toString()};
let functions = [];
onmessage = ({ data }) => {
  if (typeof data === 'string') {
    postMessage(matching(functions, compile(data)));
  } else {
    functions = data;
  }
};`;
}

/** A search that waits or runs. */
interface Search {
  pattern: string;
  resolve: (matches: boolean[] | undefined) => void;
  reject: (error: Error) => void;
}

/** Searches functions, one pattern at a time. */
export class Searcher {
  private worker: SearchWorker | undefined;
  private running: Search | undefined;
  private waiting: Search | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly functions: readonly FunctionName[],
    private readonly start: StartWorker = startWorker,
    private readonly limit = LIMIT,
  ) {}

  /**
   * Returns for each function whether it matches, or `undefined` if a later search replaced this
   * one. Rejects a pattern that takes too long.
   */
  search(pattern: string): Promise<boolean[] | undefined> {
    return new Promise((resolve, reject) => {
      this.waiting?.resolve(undefined);
      this.waiting = { pattern, resolve, reject };
      this.next();
    });
  }

  private next(): void {
    if (this.running !== undefined || this.waiting === undefined) {
      return;
    }
    const search = this.waiting;
    this.running = search;
    this.waiting = undefined;
    this.timer = setTimeout(() => {
      this.worker?.terminate();
      this.worker = undefined;
      const seconds = Math.round(this.limit / 1000);
      this.end(() => search.reject(new Error(`The search took longer than ${seconds} seconds. Use a pattern without repetitions of repetitions.`)));
    }, this.limit);
    try {
      this.started().postMessage(search.pattern);
    } catch (error) {
      this.end(() => search.reject(error instanceof Error ? error : new Error(String(error))));
    }
  }

  private started(): SearchWorker {
    if (this.worker === undefined) {
      this.worker = this.start(code(), (message) => {
        const { running } = this;
        this.end(() => running?.resolve(this.waiting === undefined ? (message as boolean[]) : undefined));
      });
      this.worker.postMessage(this.functions);
    }
    return this.worker;
  }

  private end(answer: () => void): void {
    clearTimeout(this.timer);
    this.running = undefined;
    answer();
    this.next();
  }
}

/** Starts a worker of the browser. */
function startWorker(code: string, receive: (message: unknown) => void): SearchWorker {
  const address = URL.createObjectURL(new Blob([code], { type: 'text/javascript' }));
  const worker = new Worker(address);
  worker.onmessage = ({ data }) => receive(data);
  return worker;
}
