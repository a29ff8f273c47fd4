export interface LineSplitterOptions {
  /** longest line, without its end, in bytes */
  readonly maxBytes: number;
  readonly onLine: (line: string) => void;
}

/** Cuts a stream of bytes into lines of UTF-8 and holds no more than one line of the allowed length. */
export class LineSplitter {
  readonly #options: LineSplitterOptions;
  #pending: Buffer[] = [];
  #bytes = 0;
  #broken = false;

  constructor(options: LineSplitterOptions) {
    this.#options = options;
  }

  /** False from the first line on that is too long: where the next one begins is not looked for. */
  push(chunk: Buffer): boolean {
    let rest = chunk;
    for (let end = rest.indexOf(10); !this.#broken && end !== -1; end = rest.indexOf(10)) {
      if (this.#add(rest.subarray(0, end))) this.#options.onLine(this.#take());
      rest = rest.subarray(end + 1);
    }
    return !this.#broken && this.#add(rest);
  }

  /** The first characters of the line that is not whole. */
  head(length: number): string {
    return Buffer.concat(this.#pending).toString('utf8').slice(0, length);
  }

  #add(piece: Buffer): boolean {
    const room = this.#options.maxBytes - this.#bytes;
    this.#broken = piece.length > room;
    this.#pending.push(piece.subarray(0, room));
    this.#bytes += Math.min(piece.length, room);
    return !this.#broken;
  }

  #take(): string {
    const line = Buffer.concat(this.#pending).toString('utf8');
    this.#pending = [];
    this.#bytes = 0;
    return line;
  }
}
