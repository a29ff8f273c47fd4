/**
 * Keeps the first and the last half of a byte stream in bounded memory and counts the rest. For command output: the
 * start says what ran, the end says how it failed.
 */
export class HeadTailBuffer {
  readonly #headLimit: number;
  readonly #tailLimit: number;
  readonly #head: Buffer[] = [];
  #headBytes = 0;
  #tail: Buffer[] = [];
  #tailBytes = 0;
  #total = 0;

  /** `limit` in bytes, at least 0. */
  constructor(limit: number) {
    this.#headLimit = Math.ceil(limit / 2);
    this.#tailLimit = Math.floor(limit / 2);
  }

  get totalBytes(): number {
    return this.#total;
  }

  push(chunk: Buffer): void {
    this.#total += chunk.length;
    const room = this.#headLimit - this.#headBytes;
    const forHead = Math.min(room, chunk.length);
    if (forHead > 0) {
      this.#head.push(Buffer.from(chunk.subarray(0, forHead)));
      this.#headBytes += forHead;
    }
    if (forHead < chunk.length) this.#pushTail(chunk.subarray(forHead));
  }

  #pushTail(rest: Buffer): void {
    if (this.#tailLimit === 0) return;
    // Copies: a slice would keep the whole chunk of the pipe alive.
    this.#tail.push(Buffer.from(rest.subarray(Math.max(0, rest.length - this.#tailLimit))));
    this.#tailBytes += Math.min(rest.length, this.#tailLimit);
    // Compacting at twice the limit makes a byte cost one copy on average, whatever the chunk size.
    if (this.#tailBytes > 2 * this.#tailLimit || this.#tail.length > 1024) this.#compact();
  }

  #compact(): void {
    const joined = Buffer.concat(this.#tail);
    const kept = Buffer.from(joined.subarray(Math.max(0, joined.length - this.#tailLimit)));
    this.#tail = [kept];
    this.#tailBytes = kept.length;
  }

  /** Text with a marker line where bytes were dropped; invalid UTF-8 becomes U+FFFD. */
  toString(): string {
    this.#compact();
    const head = Buffer.concat(this.#head);
    const tail = this.#tail[0] ?? Buffer.alloc(0);
    const dropped = this.#total - head.length - tail.length;
    if (dropped === 0) return Buffer.concat([head, tail]).toString('utf8');
    const headEnd = head.length - incompleteEnd(head);
    const tailStart = continuationStart(tail);
    const cut = dropped + (head.length - headEnd) + tailStart;
    return `${head.toString('utf8', 0, headEnd)}\n[... ${cut} bytes dropped ...]\n${tail.toString('utf8', tailStart)}`;
  }
}

/** Bytes at the end that begin a UTF-8 character without finishing it, 0 to 3. */
function incompleteEnd(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back++) {
    const byte = bytes[bytes.length - back] as number;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

/** Bytes at the start that continue a character begun before the cut, 0 to 3. */
function continuationStart(bytes: Buffer): number {
  let index = 0;
  while (index < Math.min(3, bytes.length) && ((bytes[index] as number) & 0xc0) === 0x80) index++;
  return index;
}
