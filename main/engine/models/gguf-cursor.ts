/** More bytes are needed than the buffer holds; at the end of the file it means "truncated". */
export class NeedMoreBytes extends Error {}

/** The bytes cannot be a GGUF header: a count or a type number is impossible. */
export class AbsurdValue extends Error {}

export type GgufScalar = number | bigint | boolean | string;
/** An array keeps its elements only when it is short; vocabularies keep their length alone. */
export interface GgufArray {
  readonly length: number;
  readonly items: readonly GgufScalar[] | null;
}
export type GgufValue = GgufScalar | GgufArray;

/** Strings up to this many bytes are read (the longest real ones are chat templates); items of kept arrays. */
export const headerLimits = { stringBytes: 16 << 20, keyBytes: 65_535, keptItems: 1024 } as const;

/** Type numbers of metadata values (gguf.md of ggml). */
const valueTypes = {
  u8: 0,
  i8: 1,
  u16: 2,
  i16: 3,
  u32: 4,
  i32: 5,
  f32: 6,
  bool: 7,
  string: 8,
  array: 9,
  u64: 10,
  i64: 11,
  f64: 12,
};
/** Bytes of a value of fixed size, by type number. */
const widths: ReadonlyMap<number, number> = new Map([
  [valueTypes.u8, 1],
  [valueTypes.i8, 1],
  [valueTypes.u16, 2],
  [valueTypes.i16, 2],
  [valueTypes.u32, 4],
  [valueTypes.i32, 4],
  [valueTypes.f32, 4],
  [valueTypes.bool, 1],
  [valueTypes.u64, 8],
  [valueTypes.i64, 8],
  [valueTypes.f64, 8],
]);

/** Reads little-endian GGUF primitives from a buffer. Every read is bounds-checked before anything is allocated. */
export class GgufCursor {
  private readonly bytes: Uint8Array;
  private readonly view: DataView;
  private readonly fileBytes: number;
  private readonly decoder = new TextDecoder();
  offset = 0;

  /** `fileBytes` is the size of the whole file: nothing may claim to reach beyond it. */
  constructor(bytes: Uint8Array, fileBytes: number) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.fileBytes = fileBytes;
  }

  /** Moves over `count` bytes and returns where they start. */
  private take(count: number): number {
    const start = this.offset;
    if (start + count > this.bytes.length) throw new NeedMoreBytes();
    this.offset = start + count;
    return start;
  }

  u32(): number {
    return this.view.getUint32(this.take(4), true);
  }

  /** A 64-bit count or offset as a number; beyond 2^53 it is absurd for any file. */
  u64(what: string): number {
    const value = this.view.getBigUint64(this.take(8), true);
    if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw new AbsurdValue(`${what} is ${value}`);
    return Number(value);
  }

  /** A count of things of at least `bytesEach` bytes; more than the file could hold is absurd. */
  count(what: string, bytesEach: number): number {
    const value = this.u64(what);
    if (value * bytesEach > this.fileBytes)
      throw new AbsurdValue(`${what} is ${value} in a file of ${this.fileBytes} bytes`);
    return value;
  }

  string(what: string, limit: number = headerLimits.stringBytes): string {
    const length = this.count(`the length of ${what}`, 1);
    if (length > limit) throw new AbsurdValue(`the length of ${what} is ${length}`);
    const start = this.take(length);
    return this.decoder.decode(this.bytes.subarray(start, start + length));
  }

  value(what: string): GgufValue {
    const type = this.u32();
    return type === valueTypes.array ? this.array(what) : this.scalar(type, what);
  }

  private array(what: string): GgufArray {
    const type = this.u32();
    const width = widths.get(type);
    if (width === undefined && type !== valueTypes.string) throw new AbsurdValue(`${what} is an array of type ${type}`);
    const length = this.count(`the length of ${what}`, width ?? 8);
    if (length <= headerLimits.keptItems) {
      const items: GgufScalar[] = [];
      for (let i = 0; i < length; i++) items.push(this.scalar(type, what));
      return { length, items };
    }
    if (width !== undefined) this.take(length * width);
    else for (let i = 0; i < length; i++) this.take(this.count(`the length of ${what}`, 1));
    return { length, items: null };
  }

  private scalar(type: number, what: string): GgufScalar {
    if (type === valueTypes.string) return this.string(what);
    const width = widths.get(type);
    if (width === undefined) throw new AbsurdValue(`${what} has type ${type}`);
    const at = this.take(width);
    switch (type) {
      case valueTypes.u8:
        return this.view.getUint8(at);
      case valueTypes.i8:
        return this.view.getInt8(at);
      case valueTypes.u16:
        return this.view.getUint16(at, true);
      case valueTypes.i16:
        return this.view.getInt16(at, true);
      case valueTypes.u32:
        return this.view.getUint32(at, true);
      case valueTypes.i32:
        return this.view.getInt32(at, true);
      case valueTypes.f32:
        return this.view.getFloat32(at, true);
      case valueTypes.f64:
        return this.view.getFloat64(at, true);
      case valueTypes.u64:
        return this.view.getBigUint64(at, true);
      case valueTypes.i64:
        return this.view.getBigInt64(at, true);
      default:
        return this.view.getUint8(at) !== 0;
    }
  }
}
